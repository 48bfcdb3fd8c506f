import { ActionIcon } from "@mantine/core";
import { IconDownload, IconMathFunction, IconPhoto } from "@tabler/icons-react";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";

import { AXES } from "../charts/axes.ts";
import { ChartTitle } from "../charts/chart-title.tsx";
import { LineChart, type Line } from "../charts/line-chart.tsx";
import { RedrawQueue } from "../charts/redraw-queue.ts";
import { saveBlob, saveImage } from "../charts/save-image.ts";
import { extremes, toCsv } from "../charts/series.ts";
import type { ChartView, ViewChange } from "../charts/view.ts";
import { placeOn } from "../runs/run-axis.ts";
import { useZoomDetail } from "../runs/use-zoom-detail.ts";
import type { ComparePlan } from "./compare-charts.ts";
import classes from "./compare-page.module.css";
import type { ChartedRun } from "./use-compared-runs.ts";

const BUDGET_MILLISECONDS = 6; // of a frame of 16, for redraws of charts
const REST_MILLISECONDS = 300; // between two redraws of one chart
const MARGIN_PIXELS = 200; // charts so near to the screen are drawn before they are seen

const redraws = new RedrawQueue((then) => void requestAnimationFrame(then), () => performance.now(), { budgetMilliseconds: BUDGET_MILLISECONDS, restMilliseconds: REST_MILLISECONDS });

/** Counts up when points of the runs arrive, while the element is on the screen, a few charts at a time. */
function usePacedVersion(runs: readonly ChartedRun[], isVisible: boolean): number {
  const [version, setVersion] = useState(0);
  const lives = runs.map(({ live }) => live);
  const key = runs.map(({ id }) => id).join();
  useEffect(() => {
    if (!isVisible) return;
    let withdraw = () => {};
    const redraw = () => flushSync(() => setVersion((old) => old + 1));
    const changed = () => { withdraw = redraws.add(redraw); };
    changed(); // points may have come while it was off the screen
    const all = lives.map((live) => live.subscribe(changed));
    return () => {
      withdraw();
      all.forEach((unsubscribe) => unsubscribe());
    };
  }, [key, isVisible]);
  return version;
}

function useIsVisible(): [React.RefObject<HTMLElement | null>, boolean] {
  const element = useRef<HTMLElement>(null);
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => setVisible(entries.at(-1)?.isIntersecting ?? false), { rootMargin: `${MARGIN_PIXELS}px` });
    if (element.current !== null) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, isVisible];
}

type Props = { plan: ComparePlan; runs: readonly ChartedRun[]; view: ChartView; onView: (change: ViewChange) => void; help: string };

/** One metric of all runs. */
export const CompareChart = memo(function CompareChart({ plan, runs, view, onView, help }: Props) {
  const [card, isVisible] = useIsVisible();
  const version = usePacedVersion(runs, isVisible);
  const { axis, smoothing, zoom } = view;
  const names = useMemo(() => [plan.id], [plan.id]);
  const zoomed = runs.map(({ id, live, clock }) => ({ runId: id, metrics: live.store, clock }));
  const detail = useZoomDetail(isVisible ? zoomed : [], names, axis, zoom);
  useEffect(() => { for (const { live } of runs) live.want(names); }, [runs, names]);
  const lines = useMemo(
    () => runs.flatMap(({ id, name, color, dashed, live, clock }): Line[] => {
      const found = live.store.lines(plan.id);
      return found.map((line) => ({
        key: `${id}|${line.axis}|${line.source}`, label: found.length > 1 ? `${name}, ${line.source}` : name, color, dashed, exact: plan.exact,
        points: placeOn(axis, detail(id, line), live.store, clock),
      }));
    }),
    [runs, plan, axis, detail, version],
  );
  const withPoints = lines.filter(({ points }) => points.x.length > 0);
  const isLogarithmic = (plan.logarithmic ?? false) !== view.switched.has(plan.id);
  const canBeLogarithmic = withPoints.every((line) => (extremes(line.points)?.min ?? 1) > 0);
  const without = runs.filter(({ id, live }) => live.has(plan.id) && !withPoints.some(({ key }) => key.startsWith(`${id}|`))).map(({ name }) => name);
  const isLoading = runs.some(({ live }) => !live.has(plan.id) && live.error === null);
  const file = plan.id.replaceAll("/", "-");
  const savePng = () => {
    const plot = card.current?.querySelector("canvas");
    if (plot) saveImage(plot, plan.title, withPoints, `${file}.png`);
  };
  return (
    <section className={classes.card} ref={card}>
      <header className={classes.head}>
        <ChartTitle title={plan.title} help={help} metric={plan.id} className={classes.title} />
        {withPoints.length > 0 && (
          <div className={classes.actions}>
            {canBeLogarithmic && <ActionIcon variant={isLogarithmic ? "light" : "subtle"} color={isLogarithmic ? undefined : "gray"} size={24} title="Logarithmic scale" aria-label={`Logarithmic scale for ${plan.title}`} aria-pressed={isLogarithmic} onClick={() => onView({ toggleScale: plan.id })}><IconMathFunction size={14} /></ActionIcon>}
            <ActionIcon variant="subtle" color="gray" size={24} title="Save as PNG" aria-label={`Save ${plan.title} as PNG`} onClick={savePng}><IconPhoto size={14} /></ActionIcon>
            <ActionIcon variant="subtle" color="gray" size={24} title="Save as CSV" aria-label={`Save ${plan.title} as CSV`} onClick={() => saveBlob(new Blob([toCsv(AXES[axis].column, withPoints)], { type: "text/csv" }), `${file}.csv`)}><IconDownload size={14} /></ActionIcon>
          </div>
        )}
      </header>
      {withPoints.length === 0 ? (
        <div className={classes.empty} data-chart={plan.id} data-points={0}>{isLoading ? "Loading" : axis === "step" || axis === "time" ? "No run has reported it" : `No run has points over ${AXES[axis].label.toLowerCase()}`}</div>
      ) : (
        <LineChart
          key={axis} name={plan.id} lines={lines} axis={axis} smoothing={smoothing} zoom={zoom} onZoom={(range) => onView({ zoom: range })} readout="card" format={plan.format}
          logarithmic={isLogarithmic && canBeLogarithmic} floor={plan.floor} ceiling={plan.ceiling} whole={plan.whole} height={190}
        />
      )}
      {withPoints.length > 0 && without.length > 0 && <p className={classes.without}>– {without.join(", ")}: no points</p>}
    </section>
  );
});
