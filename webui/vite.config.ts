import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` serves the pages itself and hands the API on to a control plane that is already up.
const controlPlane = process.env["OOLONG_URL"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  build: { target: "es2023", sourcemap: false, chunkSizeWarningLimit: 600 },
  server: {
    proxy: {
      "/api": controlPlane,
      "/login/": controlPlane,
      "/ws": { target: controlPlane, ws: true },
    },
  },
});
