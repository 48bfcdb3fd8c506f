import { SegmentedControl, Select, useMantineColorScheme, type MantineColorScheme } from "@mantine/core";
import { useMemo, useState } from "react";

import { moment } from "../common/format.ts";
import { Panel } from "../common/panel.tsx";
import { browserTimeZone, chooseTimeZone, chosenTimeZone, timeZones } from "../common/time-zone.ts";
import { useNow } from "../common/use-now.ts";
import classes from "./account.module.css";

const BROWSER = "browser";

/** Settings of this browser: the theme, and the time zone of every time. */
export function DisplayPanel() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const [zone, setZone] = useState(chosenTimeZone);
  const now = useNow();
  const zones = useMemo(() => [{ value: BROWSER, label: `The browser's: ${browserTimeZone()}` }, ...timeZones().map((name) => ({ value: name, label: name }))], []);
  const choose = (value: string | null) => {
    const chosen = value === null || value === BROWSER ? undefined : value;
    chooseTimeZone(chosen);
    setZone(chosen);
  };
  return (
    <Panel title="Display, in this browser">
      <div className={classes.fields}>
        <div role="group" aria-labelledby="theme-label">
          <p id="theme-label" className={classes.label}>Theme</p>
          <SegmentedControl fullWidth value={colorScheme} onChange={(value) => setColorScheme(value as MantineColorScheme)} data={[{ value: "auto", label: "System" }, { value: "light", label: "Light" }, { value: "dark", label: "Dark" }]} />
        </div>
        <Select
          label="Time zone" searchable allowDeselect={false} limit={50} data={zones} value={zone ?? BROWSER} onChange={choose} nothingFoundMessage="No such time zone"
          description={`Now ${moment(new Date(now).toISOString(), zone)}`} inputWrapperOrder={["label", "input", "error", "description"]}
        />
      </div>
    </Panel>
  );
}
