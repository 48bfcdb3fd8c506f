import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Pool } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { PoolPrices } from "./pool-prices.tsx";

const POOL = { name: "lab", slots: [{ device: "cuda", model: "H100" }] } as unknown as Pool;
const LIST = "GET /api/v1/pools/lab/prices";
const PUT = "PUT /api/v1/pools/lab/prices";
const prices = (...found: [string, string, string][]) => ({ currency: "EUR", prices: found.map(([device, gpu_model, per_hour]) => ({ device, gpu_model, per_hour })) });

test("a pool without prices says what they are for, and one is set for a model", async () => {
  const sent = answerRequests({ [LIST]: { body: prices() }, [PUT]: { body: prices(["cuda", "H100", "2.5000"]) } });
  renderPage(<PoolPrices pool={POOL} />);
  assert.ok(await screen.findByText(/usage has no cost/));
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Set a price" }));
  await user.click(screen.getByRole("combobox", { name: "Model" }));
  await user.click(await screen.findByText("H100"));
  await user.type(screen.getByLabelText(/Price of one slot/), "2.5");
  await user.click(screen.getByRole("button", { name: "Set price" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "PUT")?.body, { device: "cuda", gpu_model: "H100", per_hour: "2.5" }));
  assert.ok(await screen.findByText("2.50 EUR per hour"));
});

test("a price that is no number is refused at its field", async () => {
  const refusal = { status: 422, body: { code: "invalid", detail: "per_hour: a number is required", errors: [{ pointer: "/per_hour", code: "invalid", message: "a number is required" }] } };
  answerRequests({ [LIST]: { body: prices(["cpu", "", "1.0000"]) }, [PUT]: refusal });
  renderPage(<PoolPrices pool={POOL} />);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Change the price of cpu slots" }));
  await user.type(screen.getByLabelText(/Price of one slot/), "x");
  await user.click(screen.getByRole("button", { name: "Set price" }));
  assert.ok(await screen.findByText("A number is required"));
});

test("removing a price says what is free then", async () => {
  const sent = answerRequests({ [LIST]: { body: prices(["cuda", "H100", "2.5000"]) }, [PUT]: { body: prices() } });
  renderPage(<PoolPrices pool={POOL} />);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Remove the price of H100" }));
  assert.ok(screen.getByText(/the price of their device, if there is one/));
  await user.click(screen.getByRole("button", { name: "Remove" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "PUT")?.body, { device: "cuda", gpu_model: "H100", per_hour: null }));
});
