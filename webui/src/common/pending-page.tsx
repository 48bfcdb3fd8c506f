import { ProblemNotice, Waiting } from "./notices.tsx";
import { PageHeader } from "./panel.tsx";

type Props = { title: string; label?: string; error: Error | null; retry?: () => unknown };

/** A page in place of its content: that is awaited, or could not be loaded. */
export function PendingPage({ title, label, error, retry }: Props) {
  return (
    <>
      <PageHeader title={title} />
      {error === null ? <Waiting label={label} /> : <ProblemNotice error={error} retry={retry === undefined ? undefined : () => void retry()} />}
    </>
  );
}
