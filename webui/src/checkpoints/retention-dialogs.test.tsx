import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Retention } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { ApplyRetention } from "./apply-retention.tsx";
import { EditRetention } from "./edit-retention.tsx";

const PLAN = {
  free: [{ id: "ckpt_a", bytes: 2_000_000, keep_reasons: [] }, { id: "ckpt_b", bytes: 1_000_000, keep_reasons: [] }],
  keep: [{ id: "ckpt_c", bytes: 5, keep_reasons: ["alias prod"] }],
  free_bytes: 3_000_000,
};
const POLICY: Retention = { keep_last: null, best_metric: "", best_mode: "max", best_count: 1, every_steps: null, kinds: [], ttl_days: null, automatic: false };
const plan = { "POST /api/v1/checkpoint-retention/plan": { body: PLAN } };

test("nothing is deleted before the button that names the count and the bytes is pressed", async () => {
  const sent = answerRequests({ ...plan, "POST /api/v1/checkpoint-retention/apply": { body: PLAN } });
  let closed = 0;
  renderPage(<ApplyRetention mayApply done={() => { closed += 1; }} />);
  const button = await screen.findByRole("button", { name: "Delete 2 checkpoints, 3.0 MB" });
  assert.ok(screen.getByText("2 checkpoints of 3 stored would be deleted: 3.0 MB."));
  assert.ok(screen.getByText("alias prod: 1"));
  assert.ok(screen.getByText(/This cannot be undone/));
  assert.ok(screen.getByRole("button", { name: "Cancel" }).hasAttribute("data-autofocus"));
  assert.equal(sent.filter(({ url }) => url.endsWith("/apply")).length, 0);
  await userEvent.setup().click(button);
  await waitFor(() => assert.equal(closed, 1));
  assert.equal(sent.filter(({ url }) => url.endsWith("/apply")).length, 1);
});

test("a role that may not apply sees the preview, and why there is no button", async () => {
  answerRequests(plan);
  renderPage(<ApplyRetention mayApply={false} done={() => {}} />);
  assert.ok(await screen.findByText(/2 checkpoints of 3 stored/));
  assert.ok(screen.getByText(/Your role cannot apply the policy/));
  assert.equal(screen.queryByTestId("confirm-retention"), null);
});

test("a plan that deletes nothing offers nothing to confirm", async () => {
  answerRequests({ "POST /api/v1/checkpoint-retention/plan": { body: { free: [], keep: PLAN.keep, free_bytes: 0 } } });
  renderPage(<ApplyRetention mayApply done={() => {}} />);
  assert.ok(await screen.findByText("Nothing would be deleted now."));
  assert.equal(screen.queryByTestId("confirm-retention"), null);
});

test("an edited policy is previewed before it is saved, and saved as it was previewed", async () => {
  const sent = answerRequests({ ...plan, "PUT /api/v1/checkpoint-retention": { body: { ...POLICY, keep_last: 2 } } });
  renderPage(<EditRetention policy={POLICY} done={() => {}} />);
  assert.ok(screen.getByText("Without a rule nothing is deleted."));
  const user = userEvent.setup();
  await user.type(screen.getByLabelText("Newest of each run"), "2");
  assert.ok(await screen.findByText(/2 checkpoints of 3 stored/));
  await user.click(screen.getByTestId("save-retention"));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "PUT")?.body, { ...POLICY, keep_last: 2 }));
});
