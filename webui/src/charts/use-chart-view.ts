import { useCallback, useMemo } from "react";
import { useSearchParams } from "react-router";

import type { AxisId } from "./axes.ts";
import { changeChartView, readChartView, type ChartView, type ViewChange } from "./view.ts";

/** The view of the charts in the URL, and how to change it. `axes` are those of the page, the default first. */
export function useChartView(axes: readonly AxisId[]): [ChartView, (change: ViewChange) => void] {
  const [search, setSearch] = useSearchParams();
  const text = search.toString();
  const view = useMemo(() => readChartView(new URLSearchParams(text), axes), [text, axes]);
  const change = useCallback((wanted: ViewChange) => setSearch((old) => changeChartView(old, wanted, axes), { replace: true }), [setSearch, axes]);
  return [view, change];
}
