import {
  IconAlertTriangle, IconCircleCheck, IconCircleX, IconClock, IconFlag, IconHelpCircle, IconPencil, IconPlayerPause, IconPlayerPlay, IconPlayerStop,
  IconPlugConnectedX, IconRefresh, IconRocket, IconSquareCheck, IconTrash, type Icon,
} from "@tabler/icons-react";

import classes from "./status.module.css";
import { words } from "./format.ts";

type Appearance = { label: string; icon: Icon; tone: "neutral" | "info" | "active" | "good" | "warn" | "bad"; animated?: boolean };

const APPEARANCES: Record<string, Appearance> = {
  DRAFT: { label: "Draft", icon: IconPencil, tone: "neutral" },
  QUEUED: { label: "Queued", icon: IconClock, tone: "neutral" },
  STARTING: { label: "Starting", icon: IconRocket, tone: "info", animated: true },
  RUNNING: { label: "Running", icon: IconPlayerPlay, tone: "active", animated: true },
  RECOVERING: { label: "Recovering", icon: IconRefresh, tone: "warn", animated: true },
  PAUSING: { label: "Pausing", icon: IconPlayerPause, tone: "warn", animated: true },
  PAUSED: { label: "Paused", icon: IconPlayerPause, tone: "neutral" },
  PAUSED_BY_ERROR: { label: "Paused by error", icon: IconAlertTriangle, tone: "bad" },
  STOPPING: { label: "Stopping", icon: IconPlayerStop, tone: "warn", animated: true },
  FINALIZING: { label: "Finalizing", icon: IconFlag, tone: "info", animated: true },
  SUCCEEDED: { label: "Succeeded", icon: IconCircleCheck, tone: "good" },
  STOPPED: { label: "Stopped", icon: IconPlayerStop, tone: "neutral" },
  FAILED: { label: "Failed", icon: IconCircleX, tone: "bad" },
  // attempts and jobs
  SCHEDULED: { label: "Scheduled", icon: IconClock, tone: "info" },
  ENDING: { label: "Ending", icon: IconPlayerStop, tone: "warn" },
  ENDED: { label: "Ended", icon: IconSquareCheck, tone: "neutral" },
  pending: { label: "Pending", icon: IconClock, tone: "neutral" },
  preparing: { label: "Preparing", icon: IconRocket, tone: "info", animated: true },
  running: { label: "Running", icon: IconPlayerPlay, tone: "active", animated: true },
  exited: { label: "Exited", icon: IconSquareCheck, tone: "neutral" },
  // nodes and slots
  READY: { label: "Ready", icon: IconCircleCheck, tone: "good" },
  UNRESPONSIVE: { label: "Unresponsive", icon: IconAlertTriangle, tone: "warn" },
  CORDONED: { label: "Cordoned", icon: IconPlayerStop, tone: "neutral" },
  QUARANTINED: { label: "Quarantined", icon: IconAlertTriangle, tone: "bad" },
  DRAINING: { label: "Draining", icon: IconClock, tone: "warn" },
  DRAINED: { label: "Drained", icon: IconCircleCheck, tone: "neutral" },
  staying: { label: "Staying", icon: IconClock, tone: "info" },
  stopping: { label: "Stopping", icon: IconPlayerStop, tone: "warn", animated: true },
  uploading: { label: "Uploading", icon: IconRefresh, tone: "info", animated: true },
  LOST: { label: "Lost", icon: IconPlugConnectedX, tone: "bad" },
  free: { label: "Free", icon: IconCircleCheck, tone: "good" },
  held: { label: "Held", icon: IconPlayerPlay, tone: "active" },
  occupied: { label: "Occupied", icon: IconAlertTriangle, tone: "warn" },
  unhealthy: { label: "Unhealthy", icon: IconAlertTriangle, tone: "bad" },
  // reservations and maintenance
  upcoming: { label: "Upcoming", icon: IconClock, tone: "info" },
  active: { label: "Active", icon: IconPlayerPlay, tone: "active" },
  ended: { label: "Ended", icon: IconSquareCheck, tone: "neutral" },
  // conditions of a run
  DEGRADED: { label: "Degraded", icon: IconAlertTriangle, tone: "bad" },
  NEEDS_ATTENTION: { label: "Needs attention", icon: IconAlertTriangle, tone: "bad" },
  NODE_DRAINING: { label: "Leaves its node at the deadline", icon: IconClock, tone: "warn" },
  ENGINES_WAITING: { label: "Waiting for engines", icon: IconClock, tone: "neutral" },
  ENGINES_UNRESPONSIVE: { label: "Engines unresponsive", icon: IconPlugConnectedX, tone: "warn" },
  GAP: { label: "Telemetry incomplete", icon: IconAlertTriangle, tone: "warn" },
  // alerts
  critical: { label: "Critical", icon: IconAlertTriangle, tone: "bad" },
  warning: { label: "Warning", icon: IconAlertTriangle, tone: "warn" },
  info: { label: "Info", icon: IconFlag, tone: "info" },
  // models and their imports
  VALIDATING: { label: "Validating", icon: IconClock, tone: "info", animated: true },
  INVALID: { label: "Invalid", icon: IconCircleX, tone: "bad" },
  DUPLICATE: { label: "Duplicate", icon: IconSquareCheck, tone: "neutral" },
  CHECKING: { label: "Checking", icon: IconClock, tone: "info", animated: true },
  DONE: { label: "Done", icon: IconCircleCheck, tone: "good" },
  // sweeps and their trials
  FINISHED: { label: "Finished", icon: IconCircleCheck, tone: "good" },
  CANCELLED: { label: "Canceled", icon: IconPlayerStop, tone: "neutral" },
  waiting: { label: "Waiting", icon: IconClock, tone: "neutral" },
  skipped: { label: "Skipped", icon: IconPlayerStop, tone: "neutral" },
  // checkpoints
  LOCAL: { label: "On node", icon: IconClock, tone: "info" },
  STORED: { label: "Stored", icon: IconCircleCheck, tone: "good" },
  // invitations
  open: { label: "Open", icon: IconClock, tone: "info" },
  accepted: { label: "Accepted", icon: IconCircleCheck, tone: "good" },
  revoked: { label: "Revoked", icon: IconPlayerStop, tone: "neutral" },
  expired: { label: "Expired", icon: IconClock, tone: "neutral" },
  // services of the installation
  WORKS: { label: "Works", icon: IconCircleCheck, tone: "good" },
  // webhooks and their deliveries
  ON: { label: "On", icon: IconCircleCheck, tone: "good" },
  OFF: { label: "Off", icon: IconPlayerStop, tone: "neutral" },
  FAILING: { label: "Failing", icon: IconAlertTriangle, tone: "bad" },
  PENDING: { label: "Pending", icon: IconClock, tone: "info" },
  DELIVERED: { label: "Delivered", icon: IconCircleCheck, tone: "good" },
  DELETED: { label: "Deleted", icon: IconTrash, tone: "neutral" },
};

/** A status with its color, icon and label. An unknown status is shown as its own name. */
export function StatusBadge({ status, size = "sm" }: { status: string; size?: "sm" | "md" }) {
  const appearance: Appearance = APPEARANCES[status] ?? { label: words(status.toLowerCase()), icon: IconHelpCircle, tone: "neutral" };
  const Icon = appearance.icon;
  return (
    <span className={classes.badge} data-tone={appearance.tone} data-size={size} data-status={status} data-animated={appearance.animated ?? false}>
      <Icon size={size === "md" ? 15 : 13} stroke={2} aria-hidden />
      <span className={classes.label} title={appearance.label}>{appearance.label}</span>
    </span>
  );
}
