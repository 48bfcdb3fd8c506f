import { createBrowserRouter, Navigate } from "react-router";

import { RouteFailure } from "./route-failure.tsx";
import { Shell } from "./shell.tsx";

// Each page is a separate bundle, loaded when it is first opened.
export const router = createBrowserRouter([
  { path: "/login", lazy: async () => ({ Component: (await import("../login/login-page.tsx")).LoginPage }), errorElement: <RouteFailure /> },
  { path: "/invite", lazy: async () => ({ Component: (await import("../login/invite-page.tsx")).InvitePage }), errorElement: <RouteFailure /> },
  {
    path: "/",
    element: <Shell />,
    hydrateFallbackElement: <></>,
    errorElement: <RouteFailure />,
    children: [
      {
        errorElement: <RouteFailure />,
        children: [
          { index: true, lazy: async () => ({ Component: (await import("../home/home-page.tsx")).HomePage }) },
          { path: "runs", lazy: async () => ({ Component: (await import("../runs/runs-page.tsx")).RunsPage }) },
          { path: "runs/new", lazy: async () => ({ Component: (await import("../start/start-page.tsx")).StartPage }) },
          { path: "runs/compare", lazy: async () => ({ Component: (await import("../compare/compare-page.tsx")).ComparePage }) },
          { path: "runs/:runId", lazy: async () => ({ Component: (await import("../runs/run-page.tsx")).RunPage }) },
          { path: "sweeps", lazy: async () => ({ Component: (await import("../sweeps/sweeps-page.tsx")).SweepsPage }) },
          { path: "sweeps/new", lazy: async () => ({ Component: (await import("../sweeps/new-sweep-page.tsx")).NewSweepPage }) },
          { path: "sweeps/:sweepId", lazy: async () => ({ Component: (await import("../sweeps/sweep-page.tsx")).SweepPage }) },
          { path: "datasets", lazy: async () => ({ Component: (await import("../datasets/datasets-page.tsx")).DatasetsPage }) },
          { path: "datasets/new", lazy: async () => ({ Component: (await import("../datasets/upload-page.tsx")).UploadPage }) },
          { path: "datasets/:datasetId", lazy: async () => ({ Component: (await import("../datasets/dataset-page.tsx")).DatasetPage }) },
          { path: "models", lazy: async () => ({ Component: (await import("../models/models-page.tsx")).ModelsPage }) },
          { path: "checkpoints", lazy: async () => ({ Component: (await import("../checkpoints/checkpoints-page.tsx")).CheckpointsPage }) },
          { path: "checkpoints/:checkpointId", lazy: async () => ({ Component: (await import("../checkpoints/checkpoint-page.tsx")).CheckpointPage }) },
          { path: "playground", lazy: async () => ({ Component: (await import("../playground/playground-page.tsx")).PlaygroundPage }) },
          { path: "functions", lazy: async () => ({ Component: (await import("../functions/functions-page.tsx")).FunctionsPage }) },
          { path: "functions/new", lazy: async () => ({ Component: (await import("../functions/new-function-page.tsx")).NewFunctionPage }) },
          { path: "functions/tests/new", lazy: async () => ({ Component: (await import("../reward-tests/new-test-page.tsx")).NewTestPage }) },
          { path: "functions/tests/:testId", lazy: async () => ({ Component: (await import("../reward-tests/test-page.tsx")).RewardTestPage }) },
          { path: "functions/:functionId", lazy: async () => ({ Component: (await import("../functions/function-page.tsx")).FunctionPage }) },
          { path: "pool", lazy: async () => ({ Component: (await import("../pool/pool-page.tsx")).PoolPage }) },
          { path: "usage", lazy: async () => ({ Component: (await import("../usage/usage-page.tsx")).UsagePage }) },
          { path: "team", lazy: async () => ({ Component: (await import("../team/team-page.tsx")).TeamPage }) },
          { path: "account", lazy: async () => ({ Component: (await import("../account/account-page.tsx")).AccountPage }) },
          { path: "admin", lazy: async () => ({ Component: (await import("../admin/admin-page.tsx")).AdminPage }) },
          { path: "tokens", element: <Navigate to="/account#tokens" replace /> },
          { path: "*", element: <RouteFailure missing /> },
        ],
      },
    ],
  },
]);
