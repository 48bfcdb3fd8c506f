import "@mantine/core/styles/Switch.css";
import { Button, Group, Switch, Table, useComputedColorScheme } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";
import { Link, useNavigate } from "react-router";

import * as queries from "../../api/queries.ts";
import type { Run, Span, Timeline } from "../../api/schema.d.ts";
import { grouped, percent, words } from "../../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../../common/notices.tsx";
import { hasEnded } from "../ended.ts";
import { draw, drawBar, readPalette } from "./draw.ts";
import { axisLabel, coverage, describe, fetchWindow, heightOf, hitTest, isVisible, layoutLanes, pan, seconds, xToTime, zoomAround, type Bar, type Lane, type View } from "./layout.ts";
import classes from "./timeline-tab.module.css";

const POLL_MILLISECONDS = 2_000; // jobs report their spans every few seconds
const FIRST_VIEW_SECONDS = 30;
const TABLE_ROWS = 200;
const CLICK_PIXELS = 4;

/** A lane per engine and one for the trainer, colored by policy version. */
export default function TimelineTab({ run }: { run: Run }) {
  const isLive = !hasEnded(run.status);
  const refetchInterval = isLive ? POLL_MILLISECONDS : false;
  const whole = useQuery({ ...queries.runTimeline(run.id, { limit: 1 }), refetchInterval });
  const [chosen, setChosen] = useState<View | null>(null); // null: follow the newest spans
  const [seconds, setSeconds] = useState(FIRST_VIEW_SECONDS);
  const start = whole.data?.start ?? null;
  const end = whole.data?.end ?? null;
  const view = chosen ?? (end === null ? null : { from: end - seconds, to: end });
  const window = view === null ? null : fetchWindow(view);
  const query = useQuery({
    ...queries.runTimeline(run.id, window === null ? {} : window),
    enabled: window !== null,
    placeholderData: keepPreviousData,
    refetchInterval,
  });
  const error = whole.error ?? query.error;
  const retry = () => void Promise.all([whole.refetch(), query.refetch()]);
  if (error !== null) return <ProblemNotice error={error} retry={retry} />;
  if (whole.data !== undefined && (start === null || end === null)) {
    return <Empty title="No timeline yet">Engines report what they do every few seconds, from the first generation on.</Empty>;
  }
  if (view === null || start === null || end === null || query.data === undefined) return <Waiting label="Loading timeline" />;
  const follow = (length: number) => {
    setSeconds(length);
    setChosen(null);
  };
  const show = (next: View) => setChosen(next);
  const middle = (view.from + view.to) / 2;
  return (
    <>
      <div className={classes.tools}>
        <Switch
          size="sm"
          label={isLive ? "Follow live" : "Stay at the end"}
          checked={chosen === null}
          onChange={(event) => (event.currentTarget.checked ? follow(view.to - view.from) : show(view))}
        />
        <Group gap={6}>
          <Button size="compact-sm" variant="default" onClick={() => show(zoomAround(view, middle, 0.5))}>Zoom in</Button>
          <Button size="compact-sm" variant="default" onClick={() => show(zoomAround(view, middle, 2))}>Zoom out</Button>
          <Button size="compact-sm" variant="default" onClick={() => follow(FIRST_VIEW_SECONDS)}>Last {FIRST_VIEW_SECONDS} s</Button>
          <Button size="compact-sm" variant="default" onClick={() => show({ from: start, to: end })}>Whole run</Button>
        </Group>
        <p className={classes.note}>{axisLabel(Math.round(Math.max(0, view.from - start)))} to {axisLabel(Math.round(view.to - start))} of {axisLabel(Math.round(end - start))}. Scroll to zoom, drag to move.</p>
      </div>
      <Plot run={run} timeline={query.data} view={view} origin={start} show={show} />
    </>
  );
}

function Plot({ run, timeline, view, origin, show }: { run: Run; timeline: Timeline; view: View; origin: number; show: (view: View) => void }) {
  const { ref: frame, width } = useElementSize();
  const canvas = useRef<HTMLCanvasElement>(null);
  const navigate = useNavigate();
  const scheme = useComputedColorScheme("light");
  const [hovered, setHovered] = useState<Bar | null>(null);
  const drag = useRef<{ x: number; view: View } | null>(null);
  const lanes = useMemo(() => layoutLanes(timeline.lanes, timeline.data), [timeline]);
  const height = heightOf(lanes);

  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (element === null || context === null || context === undefined || width === 0) return;
    const scale = window.devicePixelRatio;
    element.width = Math.round(width * scale);
    element.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    draw(context, { lanes, view, origin, width, height, hovered }, readPalette(element));
  }, [lanes, view.from, view.to, origin, width, height, hovered, scheme]);

  useEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    const zoom = (event: WheelEvent) => {
      event.preventDefault(); // React's own wheel listener is passive
      show(zoomAround(view, xToTime(event.offsetX, view, width), Math.exp(event.deltaY / 400)));
    };
    element.addEventListener("wheel", zoom, { passive: false });
    return () => element.removeEventListener("wheel", zoom);
  });

  const barAt = (event: PointerEvent) => hitTest(lanes, view, width, event.nativeEvent.offsetX, event.nativeEvent.offsetY);
  const move = (event: PointerEvent) => {
    if (drag.current === null) return setHovered(barAt(event));
    const from = xToTime(drag.current.x, drag.current.view, width);
    const to = xToTime(event.nativeEvent.offsetX, drag.current.view, width);
    if (Math.abs(event.nativeEvent.offsetX - drag.current.x) > CLICK_PIXELS) show(pan(drag.current.view, from - to));
  };
  const release = (event: PointerEvent) => {
    const isClick = drag.current !== null && Math.abs(event.nativeEvent.offsetX - drag.current.x) <= CLICK_PIXELS;
    drag.current = null;
    const bar = barAt(event);
    if (isClick && bar !== null && bar.span.group_id !== "") void navigate(trajectoryPath(run, bar.span));
  };
  const press = (event: KeyboardEvent) => {
    const length = view.to - view.from;
    const next = { ArrowLeft: pan(view, -length / 5), ArrowRight: pan(view, length / 5), "+": zoomAround(view, view.from + length / 2, 0.5), "-": zoomAround(view, view.from + length / 2, 2) }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    show(next);
  };
  return (
    <div className={classes.plot}>
      <div ref={frame}>
        <canvas
          ref={canvas}
          className={classes.canvas}
          style={{ height }}
          tabIndex={0}
          role="img"
          aria-label="Timeline of the engines and the trainer. Arrow keys move, plus and minus zoom. The list below has the same spans."
          data-testid="timeline"
          data-clickable={hovered !== null && hovered.span.group_id !== ""}
          onKeyDown={press}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            drag.current = { x: event.nativeEvent.offsetX, view };
          }}
          onPointerMove={move}
          onPointerUp={release}
          onPointerLeave={() => setHovered(null)}
        />
      </div>
      <output className={classes.readout}>{hovered === null ? "Point at a bar to read it. Click a generation to open its trajectory." : describe(hovered.span, origin)}</output>
      <Shares lanes={lanes} view={view} />
      {timeline.left_out > 0 && <p className={classes.note}>{grouped(timeline.left_out)} shorter spans are not drawn. Zoom in to see them.</p>}
      {timeline.sampled_groups > 1 && <p className={classes.note}>One of {timeline.sampled_groups} groups was recorded, so a gap between generations is not idle time: Wait shows that.</p>}
      <Legend scheme={scheme} />
      <SpanTable run={run} spans={timeline.data.filter((span) => isVisible(span, view))} origin={origin} />
    </div>
  );
}

const trajectoryPath = (run: Run, span: Span) => `/runs/${run.id}?tab=trajectories&group=${encodeURIComponent(span.group_id)}`;

/** How each lane spends the visible time. */
function Shares({ lanes, view }: { lanes: Lane[]; view: View }) {
  const text = (lane: Lane, kinds: Span["kind"][]) => kinds.map((kind) => `${words(kind).toLowerCase()} ${percent(coverage(lane, kind, view), 0)}`).join(", ");
  return (
    <p className={classes.shares}>
      Visible time: {lanes.map((lane) => `${lane.name} ${text(lane, lane.name === "trainer" ? ["train", "publish", "wait"] : ["load", "wait", "evaluate"])}`).join(" · ")}
    </p>
  );
}

const LEGEND: { kind: Span["kind"]; outcome?: Span["outcome"]; lane?: string; name: string; text: string }[] = [
  { kind: "generate", name: "Generate", text: "The engine samples tokens of one trajectory. The color is the policy version." },
  { kind: "generate", outcome: "interrupted", name: "Interrupted", text: "A weight load stops it. It continues from its tokens with the next version." },
  { kind: "load", name: "Load", text: "The engine pauses and loads a published version." },
  { kind: "reward", name: "Reward", text: "The reward function scores the trajectory while the engine continues with others." },
  { kind: "evaluate", name: "Evaluate", text: "The engine takes no groups and scores held-out prompts with one version." },
  { kind: "wait", name: "Wait", text: "Nothing to do: the engine waits for the staleness gate, the trainer for a batch." },
  { kind: "train", lane: "trainer", name: "Train", text: "The trainer computes the step that produces this version." },
  { kind: "publish", lane: "trainer", name: "Publish", text: "The trainer writes the weights and announces them to the engines." },
  { kind: "checkpoint", lane: "trainer", name: "Checkpoint", text: "The trainer saves its state." },
];

function Legend({ scheme }: { scheme: string }) {
  return (
    <ul className={classes.legend} aria-label="Legend">
      {LEGEND.map((entry) => (
        <li key={entry.name}>
          <Sample entry={entry} scheme={scheme} />
          <span><b>{entry.name}.</b> {entry.text}</span>
        </li>
      ))}
    </ul>
  );
}

function Sample({ entry, scheme }: { entry: (typeof LEGEND)[number]; scheme: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (element === null || context === null || context === undefined) return;
    const scale = window.devicePixelRatio;
    element.width = 34 * scale;
    element.height = 14 * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.textBaseline = "middle";
    const span: Span = { lane: entry.lane ?? "rollout-0", attempt: 1, kind: entry.kind, start: 0, end: 1, version: 3, group_id: "", member: null, outcome: entry.outcome ?? "" };
    drawBar(context, { span, row: 0 }, { left: 0, width: 34, top: 1, height: 12 }, readPalette(element));
  }, [entry, scheme]);
  return <canvas ref={canvas} className={classes.sample} aria-hidden="true" />;
}

function SpanTable({ run, spans, origin }: { run: Run; spans: Span[]; origin: number }) {
  return (
    <details className={classes.spans}>
      <summary>{grouped(spans.length)} visible spans as a table{spans.length > TABLE_ROWS ? ` (the first ${TABLE_ROWS})` : ""}</summary>
      <div className={classes.scroll} tabIndex={0} role="region" aria-label="Visible spans">
        <Table fz="xs" stickyHeader>
          <Table.Thead>
            <Table.Tr><Table.Th>Lane</Table.Th><Table.Th>Kind</Table.Th><Table.Th>Version</Table.Th><Table.Th>Start</Table.Th><Table.Th>Duration</Table.Th><Table.Th>Outcome</Table.Th><Table.Th>Group</Table.Th></Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {spans.slice(0, TABLE_ROWS).map((span, index) => (
              <Table.Tr key={index}>
                <Table.Td>{span.lane}</Table.Td>
                <Table.Td>{words(span.kind)}</Table.Td>
                <Table.Td>{span.version}</Table.Td>
                <Table.Td>{axisLabel(span.start - origin)}</Table.Td>
                <Table.Td>{seconds(span.end - span.start)}</Table.Td>
                <Table.Td>{words(span.outcome)}</Table.Td>
                <Table.Td>{span.group_id !== "" && <Link to={trajectoryPath(run, span)}>{span.group_id}{span.member === null ? "" : ` member ${span.member}`}</Link>}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </details>
  );
}
