import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";

const SpecView = lazy(() => import("./spec/spec-view.tsx"));

/** The spec of the run. Its reader of YAML and the reference of fields load with the tab. */
export function SpecTab({ run }: { run: Run }) {
  const detail = useQuery(queries.run(run.id));
  if (detail.error !== null) return <ProblemNotice error={detail.error} retry={() => void detail.refetch()} />;
  if (detail.data === undefined) return <Waiting label="Loading the spec" />;
  return <Suspense fallback={<Waiting label="Loading the spec" />}><SpecView run={detail.data} /></Suspense>;
}
