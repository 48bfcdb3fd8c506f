import { fireEvent, screen, waitFor } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import type { RunDetail } from "../api/schema.d.ts";
import type { Json } from "../common/json.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { useStart } from "./use-start.ts";

const SOURCE = { id: "run_1", status: "FAILED", spec: { name: "sums", model: { base_model: "mdl_1", checkpoint: null } } } as unknown as RunDetail;

function Form({ spec }: { spec: Json }) {
  const { start } = useStart({ spec, source: SOURCE, draft: null });
  return <button onClick={start}>Start</button>;
}

async function sentBy(spec: Json): Promise<unknown> {
  const sent = answerRequests({ "POST /api/v1/runs/run_1/clone": { status: 201, body: { id: "run_2" } } });
  renderPage(<Form spec={spec} />);
  fireEvent.click(screen.getByRole("button", { name: "Start" }));
  await waitFor(() => assert.ok(sent.some(({ method }) => method === "POST")));
  return sent.find(({ method }) => method === "POST")?.body;
}

test("a run from a checkpoint of its parent is a fork: the request names the checkpoint", async () => {
  const body = (await sentBy({ name: "sums-again", model: { checkpoint: "ckpt_9" } })) as { checkpoint?: string };
  assert.equal(body.checkpoint, "ckpt_9");
});

test("a run from the same model is a clone: the request names no checkpoint", async () => {
  const body = (await sentBy({ name: "sums-again", model: { base_model: "mdl_1" } })) as { changes: { name: string } };
  assert.equal(body.changes.name, "sums-again");
  assert.equal("checkpoint" in body, false);
});
