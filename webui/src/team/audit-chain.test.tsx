import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { AuditChainPanel } from "./audit-chain.tsx";

const chain = (changes: object) => answerRequests({ "GET /api/v1/audit/chain": { body: { number: 7000, sha256: "ab".repeat(32), unsealed: 0, checked: 5000, broken: "", ...changes } } });

test("a chain that holds says how much was verified, and how to verify the rest", async () => {
  chain({ unsealed: 2 });
  renderPage(<AuditChainPanel />);
  assert.ok(await screen.findByText("The newest 5,000 entries hold"));
  assert.ok(screen.getByText(/2 newer entries join within seconds/));
  assert.ok(screen.getByText("python3 manage.py audit verify"));
});

test("a changed entry is named", async () => {
  chain({ broken: "entry number 12 is missing" });
  renderPage(<AuditChainPanel />);
  assert.ok(await screen.findByText("The audit log was changed"));
  assert.ok(screen.getByText(/entry number 12 is missing/));
  assert.equal(screen.getByTestId("chain").dataset["holds"], "false");
});
