import "@mantine/core/styles/Slider.css";
import { Button, SegmentedControl, Slider } from "@mantine/core";
import { IconZoomReset } from "@tabler/icons-react";
import { useEffect, useState } from "react";

import { AXES, type AxisId } from "./axes.ts";
import classes from "./chart-tools.module.css";
import { MAX_SMOOTHING, type ChartView, type ViewChange } from "./view.ts";

type Props = { view: ChartView; onChange: (change: ViewChange) => void; axes: readonly AxisId[]; labels?: Partial<Record<AxisId, string>> };

/** X axis, smoothing and zoom of all charts of a page. */
export function ChartTools({ view, onChange, axes, labels = {} }: Props) {
  return (
    <div className={classes.tools} role="toolbar" aria-label="Charts">
      <label>
        X axis
        <SegmentedControl
          className={classes.axes} value={view.axis} onChange={(axis) => onChange({ axis: axis as AxisId })}
          data={axes.map((id) => ({ value: id, label: <span title={AXES[id].help}>{labels[id] ?? AXES[id].label}</span> }))}
        />
      </label>
      <Smoothing value={view.smoothing} onChange={(smoothing) => onChange({ smoothing })} />
      {view.zoom === null
        ? <span>Drag across a chart to zoom, double-click to reset</span>
        : <Button variant="light" leftSection={<IconZoomReset size={14} />} onClick={() => onChange({ zoom: null })} data-testid="reset-zoom">{AXES[view.axis].place(view.zoom.min)} to {AXES[view.axis].place(view.zoom.max)}: reset zoom</Button>}
    </div>
  );
}

/** The charts follow when the slider rests, because each value is an entry of the URL. */
function Smoothing({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  const [shown, setShown] = useState(value);
  useEffect(() => setShown(value), [value]);
  return (
    <label>
      Smoothing
      <Slider w={130} size="sm" min={0} max={MAX_SMOOTHING} step={0.05} value={shown} onChange={setShown} onChangeEnd={onChange} label={(one) => one.toFixed(2)} thumbLabel="Smoothing" />
      <span className="tabular">{shown.toFixed(2)}</span>
    </label>
  );
}
