/** A model to chat with, as the options of the form name it. */
export type ModelRef = { kind: "checkpoint" | "base_model"; id: string };

export const MAX_SIDES = 2;

export const optionOf = ({ kind, id }: ModelRef): string => `${kind}:${id}`;

export function refOf(option: string): ModelRef | null {
  const [kind, id] = [option.slice(0, option.indexOf(":")), option.slice(option.indexOf(":") + 1)];
  return (kind === "checkpoint" || kind === "base_model") && id !== "" ? { kind, id } : null;
}

/** The models that a link names, in its order: ?checkpoint=…&base_model=… */
export function modelsOfUrl(search: URLSearchParams): ModelRef[] {
  return [...search].flatMap(([kind, id]) => refOf(`${kind}:${id}`) ?? []).slice(0, MAX_SIDES);
}
