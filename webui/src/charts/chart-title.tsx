import { Tooltip } from "@mantine/core";

import { conceptOf } from "./concepts.ts";

/** The title of a chart: its meaning on hover or focus, and the page that explains it on a click. */
export function ChartTitle({ title, help, metric, className }: { title: string; help: string; metric: string; className: string | undefined }) {
  return (
    <h2 className={className}>
      <Tooltip label={`${help} Opens the documentation.`.trim()} multiline maw={320} position="top-start" events={{ hover: true, focus: true, touch: true }}>
        <a href={`/docs/${conceptOf(metric)}`} target="_blank" rel="noreferrer">{title}</a>
      </Tooltip>
    </h2>
  );
}
