import {
  IconAlertTriangle, IconCircleCheck, IconCircleX, IconClock, IconFlag, IconHelpCircle, IconPlayerPause, IconPlayerPlay, IconPlayerStop,
  IconPlugConnectedX, IconRefresh, IconRocket, IconSquareCheck, type Icon,
} from "@tabler/icons-react";

import classes from "./status.module.css";
import { words } from "./format.ts";

type Look = { label: string; icon: Icon; tone: "neutral" | "info" | "active" | "good" | "warn" | "bad"; moves?: boolean };

const LOOKS: Record<string, Look> = {
  QUEUED: { label: "Queued", icon: IconClock, tone: "neutral" },
  STARTING: { label: "Starting", icon: IconRocket, tone: "info", moves: true },
  RUNNING: { label: "Running", icon: IconPlayerPlay, tone: "active", moves: true },
  RECOVERING: { label: "Recovering", icon: IconRefresh, tone: "warn", moves: true },
  PAUSING: { label: "Pausing", icon: IconPlayerPause, tone: "warn", moves: true },
  PAUSED: { label: "Paused", icon: IconPlayerPause, tone: "neutral" },
  STOPPING: { label: "Stopping", icon: IconPlayerStop, tone: "warn", moves: true },
  FINALIZING: { label: "Finalizing", icon: IconFlag, tone: "info", moves: true },
  SUCCEEDED: { label: "Succeeded", icon: IconCircleCheck, tone: "good" },
  STOPPED: { label: "Stopped", icon: IconPlayerStop, tone: "neutral" },
  FAILED: { label: "Failed", icon: IconCircleX, tone: "bad" },
  // attempts and jobs
  SCHEDULED: { label: "Scheduled", icon: IconClock, tone: "info" },
  ENDING: { label: "Ending", icon: IconPlayerStop, tone: "warn" },
  ENDED: { label: "Ended", icon: IconSquareCheck, tone: "neutral" },
  pending: { label: "Pending", icon: IconClock, tone: "neutral" },
  preparing: { label: "Preparing", icon: IconRocket, tone: "info", moves: true },
  running: { label: "Running", icon: IconPlayerPlay, tone: "active", moves: true },
  exited: { label: "Exited", icon: IconSquareCheck, tone: "neutral" },
  // nodes and slots
  READY: { label: "Ready", icon: IconCircleCheck, tone: "good" },
  UNRESPONSIVE: { label: "Unresponsive", icon: IconAlertTriangle, tone: "warn" },
  CORDONED: { label: "Cordoned", icon: IconPlayerStop, tone: "neutral" },
  DRAINING: { label: "Draining", icon: IconClock, tone: "warn" },
  DRAINED: { label: "Drained", icon: IconCircleCheck, tone: "neutral" },
  LOST: { label: "Lost", icon: IconPlugConnectedX, tone: "bad" },
  free: { label: "Free", icon: IconCircleCheck, tone: "good" },
  held: { label: "Held", icon: IconPlayerPlay, tone: "active" },
  unhealthy: { label: "Unhealthy", icon: IconAlertTriangle, tone: "bad" },
  // conditions of a run
  DEGRADED: { label: "Degraded", icon: IconAlertTriangle, tone: "bad" },
  NEEDS_ATTENTION: { label: "Needs attention", icon: IconAlertTriangle, tone: "bad" },
  ENGINES_WAITING: { label: "Waits for engines", icon: IconClock, tone: "neutral" },
  GAP: { label: "Last lines missing", icon: IconAlertTriangle, tone: "warn" },
  // alerts
  critical: { label: "Critical", icon: IconAlertTriangle, tone: "bad" },
  warning: { label: "Warning", icon: IconAlertTriangle, tone: "warn" },
  info: { label: "Note", icon: IconFlag, tone: "info" },
  // checkpoints
  LOCAL: { label: "On its node", icon: IconClock, tone: "info" },
  STORED: { label: "Stored", icon: IconCircleCheck, tone: "good" },
};

/** Colour, icon and word together; a status that this page does not know yet is shown by its own word. */
export function StatusBadge({ status, size = "sm" }: { status: string; size?: "sm" | "md" }) {
  const look: Look = LOOKS[status] ?? { label: words(status.toLowerCase()), icon: IconHelpCircle, tone: "neutral" };
  const Icon = look.icon;
  return (
    <span className={classes.badge} data-tone={look.tone} data-size={size} data-status={status} data-moves={look.moves ?? false}>
      <Icon size={size === "md" ? 15 : 13} stroke={2} aria-hidden />
      {look.label}
    </span>
  );
}
