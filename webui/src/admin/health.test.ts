import assert from "node:assert/strict";
import { test } from "vitest";

import type { Health } from "../api/schema.d.ts";
import { failing, SERVICES } from "./health.ts";

const well: Health = { db: "ok", broker: "ok", store: "ok", scheduler: "ok", webhooks: "ok" };

test("every dependency that the API reports is shown once", () => {
  assert.deepEqual(SERVICES.map(({ key }) => key).sort(), Object.keys(well).sort());
});

test("what is not ok is named with advice", () => {
  assert.deepEqual(failing(well), []);
  const [service] = failing({ ...well, scheduler: "has not run since 2026-01-01T00:00:00.000Z" });
  assert.equal(service?.name, "Worker and beat");
  assert.match(service?.advice ?? "", /manage.py ps/);
});
