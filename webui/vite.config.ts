import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// `npm run dev` serves the pages itself and hands the API on to a control plane that is already up.
const controlPlane = process.env["OOLONG_URL"] ?? "http://127.0.0.1:8080";

// The server sends FILE.br or FILE.gz in the place of FILE to browsers that take it.
function precompress(): Plugin {
  let folder = "";
  return {
    name: "precompress",
    apply: "build",
    configResolved: (config) => {
      folder = join(config.root, config.build.outDir);
    },
    closeBundle: () => {
      for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|svg|json|html)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        const content = readFileSync(path);
        if (content.length < 1024) continue;
        writeFileSync(`${path}.br`, brotliCompressSync(content));
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), precompress()],
  build: { target: "es2023", sourcemap: false, chunkSizeWarningLimit: 600 },
  server: {
    proxy: {
      "/api": controlPlane,
      "/login/": controlPlane,
      "/docs": controlPlane,
      "/ws": { target: controlPlane, ws: true },
    },
  },
});
