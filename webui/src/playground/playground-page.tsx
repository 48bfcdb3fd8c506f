import { useSearchParams } from "react-router";

import { OpenForm } from "./open-form.tsx";
import { PlaygroundSession } from "./playground-session.tsx";

/** Without an id: choose models and open a playground. With one: chat in it. */
export function PlaygroundPage() {
  const [search] = useSearchParams();
  const id = search.get("id");
  return id === null || id === "" ? <OpenForm key={search.toString()} /> : <PlaygroundSession key={id} id={id} />;
}
