import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";

import { patch, post, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { RunDetail, RunSpec } from "../api/schema.d.ts";
import { textAt, type Json } from "../common/json.ts";
import { mergePatch } from "./merge-patch.ts";

type Options = { spec: Json; source: RunDetail | null; draft: RunDetail | null };

/** A key with which a repeated submit of the same form returns the same run. */
function idempotencyKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Start the run of the form, or save it as a draft. */
export function useStart({ spec, source, draft }: Options) {
  const [key, setKey] = useState(idempotencyKey);
  const navigate = useNavigate();
  const client = useQueryClient();
  const keep = (run: RunDetail) => {
    client.setQueryData(queries.run(run.id).queryKey, run);
    void client.invalidateQueries({ queryKey: ["runs"] });
  };
  const replaceSpec = (run: RunDetail) => patch("/api/v1/runs/{run_id}", { path: { run_id: run.id }, body: { spec: spec as RunSpec } }); // the server checks it
  const headers = { "Idempotency-Key": key };
  const start = useMutation({
    mutationFn: async () => {
      if (source !== null && source.status !== "DRAFT") return post("/api/v1/runs/{run_id}/clone", { path: { run_id: source.id }, body: changesTo(source, spec), headers });
      if (draft === null) return post("/api/v1/runs", { body: { spec }, headers });
      await replaceSpec(draft);
      return post("/api/v1/runs/{run_id}/submit", { path: { run_id: draft.id }, headers });
    },
    onSuccess: (run) => {
      keep(run);
      void navigate(`/runs/${run.id}`);
    },
    onError: () => setKey(idempotencyKey()),
  });
  const save = useMutation({
    mutationFn: async () => (draft === null ? post("/api/v1/runs", { body: { spec, draft: true } }) : replaceSpec(draft)),
    onSuccess: (run) => {
      keep(run);
      notifications.show({ message: `Draft ${run.name} is saved` });
      if (draft === null) void navigate(`/runs/new?draft=${run.id}`, { replace: true });
    },
  });
  const discard = useMutation({
    mutationFn: async (id: string) => remove("/api/v1/runs/{run_id}", { path: { run_id: id } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ["runs"] });
      void navigate("/runs/new", { replace: true });
    },
  });
  return {
    start: () => { save.reset(); start.mutate(); },
    save: () => { start.reset(); save.mutate(); },
    discard: discard.mutate,
    reset: () => { start.reset(); save.reset(); },
    error: start.error ?? save.error ?? discard.error,
    isStarting: start.isPending,
    isSaving: save.isPending,
  };
}

/** The changes that make the spec of the form of the parent's, and the checkpoint if the run begins with another than the parent did. */
function changesTo(source: RunDetail, spec: Json) {
  const checkpoint = textAt(spec, "model", "checkpoint");
  const changes = mergePatch(source.spec, spec);
  return checkpoint === "" || checkpoint === textAt(source.spec, "model", "checkpoint") ? { changes } : { changes, checkpoint };
}
