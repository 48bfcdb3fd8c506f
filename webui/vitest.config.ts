import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Pure modules (`*.test.ts`) run without a document; components (`*.test.tsx`) get one.
export default defineConfig({
  plugins: [react()],
  test: {
    projects: [
      { test: { name: "modules", include: ["src/**/*.test.ts"], environment: "node" } },
      { extends: true, test: { name: "components", include: ["src/**/*.test.tsx"], environment: "happy-dom", setupFiles: "src/testing/setup.ts", css: false } },
    ],
  },
});
