import type { Health } from "../api/schema.d.ts";

export type Service = { key: keyof Health; name: string; purpose: string; advice: string };

/** What the installation needs, in the order in which one looks for the cause. */
export const SERVICES: readonly Service[] = [
  { key: "db", name: "PostgreSQL", purpose: "All rows. Nothing works without it.", advice: "Check DATABASE_URL, the server and its log. After an update, run python3 manage.py migrate." },
  { key: "broker", name: "Valkey", purpose: "Wakes workers and streams. Without it everything is later, and nothing is lost.", advice: "Check REDIS_URL and the server." },
  { key: "store", name: "Storage", purpose: "Datasets, models and checkpoints.", advice: "Check STORAGE_URL or the data directory, its permissions and free space." },
  { key: "scheduler", name: "Worker and beat", purpose: "Places jobs, reaps leases, validates datasets.", advice: "Check that a worker and a beat process run: python3 manage.py ps." },
  { key: "webhooks", name: "Webhooks process", purpose: "Sends webhooks. Without it they wait.", advice: "Check that a worker serves the queue webhooks: python3 manage.py ps." },
];

export const isWell = (state: string): boolean => state === "ok";

export const failing = (health: Health): Service[] => SERVICES.filter(({ key }) => !isWell(health[key]));
