import type { Checkpoint, StoredFile } from "../api/schema.d.ts";

const MODEL_FOLDER = "hf/";
const ADAPTER_FOLDER = "adapter/";

/** Quoted where a shell would read it otherwise. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** A folder for the export: the run's name and the step, in letters that need no quotes. */
export function exportFolder({ run, step }: Pick<Checkpoint, "run" | "step">): string {
  const name = run.name.toLowerCase().replaceAll(/[^a-z0-9._]+/g, "-").replaceAll(/^[-.]+|[-.]+$/g, "");
  return `${name || run.id}-step-${step}`;
}

/** The commands that write the model, and the LoRA adapter where there is one. Empty when the checkpoint holds no model. */
export function exportCommands(checkpoint: Pick<Checkpoint, "id" | "run" | "step">, files: Pick<StoredFile, "name">[]): string[] {
  const folder = exportFolder(checkpoint);
  const has = (prefix: string) => files.some(({ name }) => name.startsWith(prefix));
  return [
    ...(has(MODEL_FOLDER) ? [`oolong checkpoint export ${checkpoint.id} ${folder}`] : []),
    ...(has(ADAPTER_FOLDER) ? [`oolong checkpoint export ${checkpoint.id} ${folder}-adapter --adapter`] : []),
  ];
}

/** Fetches a signed link. The same command again resumes an interrupted download, then the hash is compared. */
export function linkCommand({ id }: Pick<Checkpoint, "id">, url: string, sha256: string): string {
  return `curl --fail --location --continue-at - --output ${id}.tar ${quoted(url)}\necho '${sha256}  ${id}.tar' | sha256sum --check`;
}
