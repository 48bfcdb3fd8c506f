import "@fontsource-variable/inter";
import "@fontsource-variable/jetbrains-mono";
import "./app/mantine.css";
import "./app/tokens.css";
import "./app/locale.ts";

import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";

import { queryClient } from "./api/query-client.ts";
import { NotificationArea } from "./app/notification-area.tsx";
import { router } from "./app/routes.tsx";
import { theme } from "./app/theme.ts";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element with the id root");

createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} defaultColorScheme="auto">
      <QueryClientProvider client={queryClient}>
        <NotificationArea />
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
