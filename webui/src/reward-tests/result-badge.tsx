import { IconAlertTriangle, IconCircleCheck, IconCircleX } from "@tabler/icons-react";

import type { RewardTest } from "../api/schema.d.ts";
import { StatusBadge } from "../common/status.tsx";
import classes from "./reward-tests.module.css";

const RESULTS = {
  green: { label: "Green", icon: IconCircleCheck, help: "No finding. Runs may learn from this reward." },
  amber: { label: "Amber", icon: IconAlertTriangle, help: "Usable, with findings to read first." },
  red: { label: "Red", icon: IconCircleX, help: "A run would learn something else than what is wanted." },
} as const;

/** The result of a test, or its status while it has none. */
export function ResultBadge({ test }: { test: Pick<RewardTest, "result" | "status"> }) {
  if (test.result === "") return <StatusBadge status={test.status} />;
  const { label, icon: Icon, help } = RESULTS[test.result];
  return <span className={classes.result} data-result={test.result} title={help}><Icon size={13} stroke={2} aria-hidden /> {label}</span>;
}
