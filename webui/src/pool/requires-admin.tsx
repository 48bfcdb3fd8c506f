import { Tooltip } from "@mantine/core";

import type { Pool } from "../api/schema.d.ts";

/** A control for admins of the pool. For others it is disabled, with a tooltip that says why. */
export function RequiresAdmin({ pool, children }: { pool: Pool; children: React.ReactNode }) {
  if (pool.may_manage) return <>{children}</>;
  return <Tooltip label={pool.blocked_reason} multiline w={320}><span>{children}</span></Tooltip>;
}
