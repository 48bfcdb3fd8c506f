import { screen } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import FromTemplate from "./from-template.tsx";

const TEMPLATE = { id: "tpl_1", name: "nightly", ref: "nightly@2", spec: { seed: 2 }, versions: [{ number: 1, spec: { seed: 1 }, created_at: "" }, { number: 2, spec: { seed: 2 }, created_at: "" }] };
const shown = (reference: string) => {
  answerRequests({ "GET /api/v1/run-templates?limit=200": { body: { data: [TEMPLATE], next_cursor: null, has_more: false } } });
  renderPage(<FromTemplate reference={reference}>{(fill) => <output data-testid="spec">{JSON.stringify(fill({ name: "", seed: 9 }))}</output>}</FromTemplate>);
};

test.for([["nightly", 2], ["nightly@1", 1]] as const)("the form begins with %s", async ([reference, seed]) => {
  shown(reference);
  assert.equal((await screen.findByTestId("spec")).textContent, `{"name":"","seed":${seed}}`);
});

test.for(["weekly", "nightly@3"])("a template that does not exist is named, and the form stays: %s", async (reference) => {
  shown(reference);
  assert.match((await screen.findByTestId("template")).textContent!, new RegExp(`have no template ${reference}`));
  assert.equal(screen.getByTestId("spec").textContent, '{"name":"","seed":9}');
});
