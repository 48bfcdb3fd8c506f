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

export interface ExportCommand { command: string; about: string }

/** The commands that write the model, or the LoRA adapter and the merged model. Empty when the checkpoint holds neither. */
export function exportCommands(checkpoint: Pick<Checkpoint, "id" | "run" | "step" | "content">, files: Pick<StoredFile, "name">[]): ExportCommand[] {
  const folder = exportFolder(checkpoint);
  const command = `oolong checkpoint export ${checkpoint.id} ${folder}`;
  const has = (prefix: string) => files.some(({ name }) => name.startsWith(prefix));
  if (checkpoint.content === "adapter") {
    if (!has(ADAPTER_FOLDER)) return [];
    return [
      { command: `${command}-adapter`, about: "The LoRA adapter alone, as a PEFT directory" },
      { command: `${command} --merged`, about: "A Hugging Face directory: the base model with the adapter merged into its weights" },
    ];
  }
  return has(MODEL_FOLDER) ? [{ command, about: "A Hugging Face directory with a model card, each file's SHA-256 verified" }] : [];
}

/** Fetches a signed link. The same command again resumes an interrupted download, then the hash is compared. */
export function linkCommand({ id }: Pick<Checkpoint, "id">, url: string, sha256: string): string {
  return `curl --fail --location --continue-at - --output ${id}.tar ${quoted(url)}\necho '${sha256}  ${id}.tar' | sha256sum --check`;
}
