import { Button } from "@mantine/core";
import { IconAlertTriangle, IconInbox } from "@tabler/icons-react";
import type { ReactNode } from "react";

import { Problem, type FieldProblem } from "../api/problem.ts";
import classes from "./notices.module.css";

/** An API error: the message, the invalid fields, and a retry button. */
export function ProblemNotice({ error, retry, hidePointers = [] }: { error: unknown; retry?: () => void; hidePointers?: string[] }) {
  if (error === null || error === undefined) return null;
  const problem = error instanceof Problem ? error : new Problem({ status: 0, code: "page", title: "Unexpected error", detail: String(error) });
  const errors = problem.errors.filter((entry) => !hidePointers.includes(entry.pointer));
  const isRepeated = errors.some((entry) => entry.message === problem.message); // the list says it with its field
  return (
    <div className={classes.problem} role="alert" data-code={problem.code}>
      <IconAlertTriangle size={17} aria-hidden />
      <div className={classes.problemText}>
        <strong>{problem.title}</strong>
        {problem.message !== problem.title && !isRepeated && <p>{problem.message}</p>}
        <FieldProblems errors={errors} />
        {problem.requestId !== "" && <p className={classes.request}>Request {problem.requestId}</p>}
      </div>
      {retry !== undefined && problem.status !== 404 && <Button variant="default" onClick={retry}>Try again</Button>}
    </div>
  );
}

export function FieldProblems({ errors }: { errors: FieldProblem[] }) {
  if (errors.length === 0) return null;
  return (
    <ul className={classes.fields}>
      {errors.map((entry, index) => (
        <li key={`${entry.pointer}-${index}`}>
          {entry.pointer !== "" && <code className="mono">{entry.pointer}</code>} {entry.message}
        </li>
      ))}
    </ul>
  );
}

/** An empty list: says what belongs here and how to add it. */
export function Empty({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className={classes.empty}>
      <IconInbox size={26} stroke={1.4} aria-hidden />
      <strong>{title}</strong>
      {children !== undefined && <p>{children}</p>}
      {action}
    </div>
  );
}

/** What stands for content until it arrives: bars in its place, and what is awaited in words. Fast answers show neither. */
export function Waiting({ label = "Loading" }: { label?: string }) {
  return (
    <div className={classes.waiting} role="status">
      <span>{label}</span>
      <i aria-hidden /><i aria-hidden /><i aria-hidden />
    </div>
  );
}
