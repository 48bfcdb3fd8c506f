import "@mantine/core/styles/NumberInput.css";
import { Button, Group, NumberInput, Select, Table, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Version } from "../api/schema.d.ts";
import { grouped, percent } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import classes from "./statistics.module.css";
import { leakTexts, ratiosOf, type RatioFields } from "./version-text.ts";

/** The splits of a version, prompts that are in two of them, and a form for other splits. */
export function SplitsPanel({ version, readOnly, onDerived }: { version: Version; readOnly: string | null; onDerived: (made: Version) => void }) {
  return (
    <div className={classes.columns}>
      <Panel title={`Splits of ${version.ref}`} flush>
        <Table className="tabular" data-testid="splits">
          <Table.Thead><Table.Tr><Table.Th>Split</Table.Th><Table.Th ta="right">Rows</Table.Th><Table.Th ta="right">Share</Table.Th><Table.Th ta="right">With completion</Table.Th><Table.Th ta="right">With pair</Table.Th></Table.Tr></Table.Thead>
          <Table.Tbody>
            {Object.entries(version.splits).map(([name, rows]) => (
              <Table.Tr key={name}><Table.Td fw={560}>{name}</Table.Td><Table.Td ta="right">{grouped(rows)}</Table.Td><Table.Td ta="right">{percent(rows / Math.max(1, version.rows))}</Table.Td><Table.Td ta="right">{grouped(version.with_completion[name] ?? 0)}</Table.Td><Table.Td ta="right">{grouped(version.with_pair[name] ?? 0)}</Table.Td></Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Panel>
      <div style={{ display: "grid", gap: 12 }}>
        <Leaks version={version} />
        <Derive version={version} readOnly={readOnly} onDerived={onDerived} />
      </div>
    </div>
  );
}

function Leaks({ version }: { version: Version }) {
  const isAlone = Object.keys(version.splits).length < 2;
  const { data, error, isPending, refetch } = useQuery({ ...queries.datasetLeaks(version.id), enabled: !isAlone });
  const leaks = data === undefined ? [] : leakTexts(data, version.splits);
  return (
    <Panel title="Leak check" aside="prompts that are in two splits">
      {isAlone ? <p className={classes.note}>There is only one split, so nothing can leak.</p> : (
        <>
          <ProblemNotice error={error} retry={() => void refetch()} />
          {isPending ? <Waiting label="Comparing the splits" /> : data !== undefined && (leaks.length === 0 ? <p className={`${classes.note} ${classes.good}`} data-testid="leaks">✓ No prompt is in two splits.</p> : (
            <div data-testid="leaks">
              <ul className={`${classes.list} ${classes.bad}`}>{leaks.map((leak) => <li key={leak}>{leak}.</li>)}</ul>
              <p className={classes.note} style={{ marginTop: 8 }}>An evaluation on such prompts measures memory. New splits below keep equal prompts together.</p>
            </div>
          ))}
        </>
      )}
    </Panel>
  );
}

function Derive({ version, readOnly, onDerived }: { version: Version; readOnly: string | null; onDerived: (made: Version) => void }) {
  const [fields, setFields] = useState<RatioFields[]>([{ name: "train", percent: 90 }, { name: "eval", percent: 10 }]);
  const [seed, setSeed] = useState<number | string>(0);
  const [stratify, setStratify] = useState<"answer" | "split" | "">("");
  const client = useQueryClient();
  const checked = ratiosOf(fields);
  const derive = useMutation({
    mutationFn: async () => ("ratios" in checked ? post("/api/v1/dataset-versions/{version_id}/split", { path: { version_id: version.id }, body: { ratios: checked.ratios, seed: Number(seed) || 0, stratify: stratify === "" ? null : stratify } }) : null),
    onSuccess: (made) => {
      if (made === null) return;
      void client.invalidateQueries({ queryKey: ["datasets"] });
      notifications.show({ message: `${made.ref} has these splits. ${version.ref} stays as it is.` });
      onDerived(made);
    },
  });
  const set = (index: number, changed: Partial<RatioFields>) => setFields((old) => old.map((field, at) => (at === index ? { ...field, ...changed } : field)));
  return (
    <Panel title="New splits" aside="a new version; rows with the same prompt stay together">
      <form className={classes.ratios} onSubmit={(event) => { event.preventDefault(); derive.mutate(); }}>
        <ProblemNotice error={derive.error} />
        {fields.map((field, index) => (
          <Group key={index} gap={8} align="flex-end">
            <TextInput label={index === 0 ? "Split" : undefined} aria-label={`Name of split ${index + 1}`} w={160} value={field.name} onChange={(event) => set(index, { name: event.currentTarget.value })} />
            <NumberInput label={index === 0 ? "Percent" : undefined} aria-label={`Percent of split ${index + 1}`} w={100} min={0} max={100} suffix=" %" value={field.percent} onChange={(percent) => set(index, { percent: typeof percent === "string" ? percent.replace(" %", "") : percent })} />
            {fields.length > 2 && <Button variant="subtle" color="gray" aria-label={`Remove split ${index + 1}`} onClick={() => setFields((old) => old.filter((_, at) => at !== index))}>Remove</Button>}
          </Group>
        ))}
        <Group gap={8} align="flex-end">
          <Button variant="default" onClick={() => setFields((old) => [...old, { name: "", percent: "" }])}>Add a split</Button>
          <NumberInput label="Seed" w={100} min={0} allowDecimal={false} value={seed} onChange={setSeed} />
          <Select label="Keep shares of" w={170} allowDeselect={false} data={[{ value: "", label: "nothing" }, { value: "answer", label: "each answer" }, { value: "split", label: "each old split" }]} value={stratify} onChange={(value) => setStratify((value ?? "") as typeof stratify)} />
        </Group>
        <Group justify="space-between" gap={8}>
          <span className={classes.note} style={{ margin: 0 }} role="status">{"problem" in checked ? checked.problem : `${grouped(version.rows)} rows in ${fields.length} splits`}</span>
          <Button type="submit" variant="default" disabled={"problem" in checked || readOnly !== null} title={readOnly ?? undefined} loading={derive.isPending} data-testid="derive">Create a version with these splits</Button>
        </Group>
      </form>
    </Panel>
  );
}
