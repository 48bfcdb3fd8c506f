import { createBrowserRouter } from "react-router";

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
          { path: "datasets", lazy: async () => ({ Component: (await import("../datasets/datasets-page.tsx")).DatasetsPage }) },
          { path: "datasets/new", lazy: async () => ({ Component: (await import("../datasets/upload-page.tsx")).UploadPage }) },
          { path: "datasets/:datasetId", lazy: async () => ({ Component: (await import("../datasets/dataset-page.tsx")).DatasetPage }) },
          { path: "models", lazy: async () => ({ Component: (await import("../models/models-page.tsx")).ModelsPage }) },
          { path: "pool", lazy: async () => ({ Component: (await import("../pool/pool-page.tsx")).PoolPage }) },
          { path: "tokens", lazy: async () => ({ Component: (await import("../tokens/tokens-page.tsx")).TokensPage }) },
          { path: "*", element: <RouteFailure missing /> },
        ],
      },
    ],
  },
]);
