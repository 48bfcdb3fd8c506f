import { Button } from "@mantine/core";
import { IconAlertTriangle, IconCheck, IconCircleX, IconLoader2 } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Link } from "react-router";

import type { FieldProblem } from "../api/problem.ts";
import type { DryRun, LintFinding } from "../api/schema.d.ts";
import { Waiting } from "../common/notices.tsx";
import { count, titleOf } from "./faults.ts";
import { jobTexts, otherJobsText, slotsText, startText, timeText, waitText, workText } from "./plan-words.ts";
import classes from "./rail.module.css";
import type { SyntaxProblem } from "./spec-state.ts";

export type Check = { errors: FieldProblem[]; warnings: LintFinding[]; valid: boolean | null; syntaxError: SyntaxProblem | null };

type ActProps = {
  check: Check; readOnly: string | null; isStarting: boolean; startLabel: string; onStart: () => void; onFocus: (pointer: string) => void; children: ReactNode;
};

/** Whether the run can start, the button that starts it, and if it cannot, why and the way to the first error. */
export function StartPanel({ check, readOnly, isStarting, startLabel, onStart, onFocus, children }: ActProps) {
  const first = check.errors[0];
  const blocked = readOnly ?? blockedReason(check);
  const toFirst = () => { if (readOnly === null && (check.syntaxError !== null || first !== undefined)) onFocus(first?.pointer ?? ""); };
  const hasWay = readOnly === null && (check.syntaxError !== null || first !== undefined);
  return (
    <section className={classes.act} aria-label="Start">
      <Status check={check} />
      <Button
        fullWidth loading={isStarting} aria-disabled={blocked !== null} data-disabled={blocked !== null || undefined} aria-describedby={blocked === null ? undefined : "start-blocked"}
        onClick={blocked === null ? onStart : toFirst} data-testid="start"
      >
        {startLabel}
      </Button>
      {blocked !== null && (
        <p id="start-blocked" className={classes.blocked}>
          {blocked} {hasWay && <button type="button" className={classes.link} onClick={toFirst}>{check.syntaxError !== null ? "Go to the line" : "Go to the first"}</button>}
        </p>
      )}
      <div className={classes.more}>{children}</div>
    </section>
  );
}

function blockedReason({ errors, valid, syntaxError }: Check): string | null {
  if (syntaxError !== null) return `Line ${syntaxError.line} has a syntax error.`;
  if (errors.length > 0) return `${count(errors.length, "error")} to fix first.`;
  return valid === null ? "The spec is being checked." : null;
}

function Status({ check: { errors, warnings, valid, syntaxError } }: { check: Check }) {
  const [tone, icon, text] =
    syntaxError !== null ? ["bad", <IconCircleX key="bad" size={15} aria-hidden />, "Syntax error"] :
    errors.length > 0 ? ["bad", <IconCircleX key="bad" size={15} aria-hidden />, count(errors.length, "error")] :
    valid === null ? ["none", <IconLoader2 key="none" size={15} aria-hidden />, "Checking"] :
    ["good", <IconCheck key="good" size={15} aria-hidden />, "Valid"];
  return (
    <p className={classes.status}>
      <span data-tone={tone} role="status" data-testid="validation">{icon} {text}</span>
      {syntaxError === null && warnings.length > 0 && <span data-tone="warn"><IconAlertTriangle size={15} aria-hidden /> {count(warnings.length, "warning")}</span>}
    </p>
  );
}

/** The errors of the spec. Each leads to its field, or to its line in the text. */
export function Errors({ errors, syntaxError, lines, onFocus }: { errors: FieldProblem[]; syntaxError: SyntaxProblem | null; lines: (pointer: string) => number | null; onFocus: (pointer: string) => void }) {
  if (syntaxError !== null) {
    return (
      <RailSection title="Errors">
        <ul className={classes.items} data-testid="errors">
          <li data-tone="bad"><button type="button" onClick={() => onFocus("")}>Line {syntaxError.line}</button><p>{syntaxError.message}</p></li>
        </ul>
      </RailSection>
    );
  }
  if (errors.length === 0) return null;
  return (
    <RailSection title="Errors" aside={errors.length}>
      <ul className={classes.items} data-testid="errors">
        {errors.map(({ pointer, code, message }, index) => {
          const line = lines(pointer);
          return (
            <li key={`${pointer}-${index}`} data-tone="bad" data-pointer={pointer}>
              <button type="button" onClick={() => onFocus(pointer)}>{line === null ? "" : `Line ${line}: `}{titleOf(pointer)}</button>
              <p>{message} {WAYS[code] !== undefined && <Link to={WAYS[code].to}>{WAYS[code].label}</Link>}</p>
            </li>
          );
        })}
      </ul>
    </RailSection>
  );
}

/** Where what the project lacks is added. */
const WAYS: Record<string, { to: string; label: string }> = {
  unknown_dataset: { to: "/datasets/new", label: "Upload a dataset" },
  unknown_model: { to: "/models", label: "Register a base model" },
};

export function Warnings({ warnings, onFocus }: { warnings: LintFinding[]; onFocus: (pointer: string) => void }) {
  if (warnings.length === 0) return null;
  return (
    <RailSection title="Warnings" aside={warnings.length}>
      <ul className={classes.items} data-testid="warnings">
        {warnings.map(({ pointer, code, message, advice }) => (
          <li key={code + pointer} data-tone="warn" data-pointer={pointer}>
            <button type="button" onClick={() => onFocus(pointer)}>{titleOf(pointer)}</button>
            <p>{message}. {advice}</p>
          </li>
        ))}
      </ul>
    </RailSection>
  );
}

/** What the run takes: slots, wait, work and time. */
export function PlanFacts({ plan, isLoading }: { plan: DryRun | null | undefined; isLoading: boolean }) {
  if (plan === null || plan === undefined) return isLoading ? <RailSection title="What it takes"><Waiting label="Planning" /></RailSection> : null;
  const others = otherJobsText(plan);
  const work = workText(plan);
  const starts = startText(plan);
  const { ahead, position } = plan.placement;
  return (
    <RailSection title="What it takes">
      <dl className={classes.facts} data-testid="plan">
        <dt>Slots</dt>
        <dd><strong>{slotsText(plan)}</strong>{jobTexts(plan).map((text) => <div key={text}>{text}</div>)}{others !== "" && <div className={classes.faint}>beside them, without a slot: {others}</div>}</dd>
        <dt>Wait</dt>
        <dd>
          <span data-tone={plan.placement.code === "never_fits" ? "bad" : undefined}>{waitText(plan)}</span>
          {starts !== null && <div>{starts}</div>}
          {ahead.length > 0 && (
            <details>
              <summary>{count(ahead.length, "run")} ahead{position !== null && position - 1 > ahead.length ? ` of ${position - 1}` : ""}</summary>
              <ul>{ahead.map((run, index) => <li key={index}>{run.run_id === "" ? run.name : <Link to={`/runs/${run.run_id}`}>{run.name}</Link>}, {count(run.slots_needed, "slot")}, priority {run.priority}</li>)}</ul>
            </details>
          )}
        </dd>
        {work !== null && <><dt>Work</dt><dd>{work}</dd></>}
        <dt>Time and cost</dt>
        <dd>{timeText(plan)}</dd>
      </dl>
    </RailSection>
  );
}

export function RailSection({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section className={classes.section}>
      <h2>{title} {aside !== undefined && <span className="tabular">{aside}</span>}</h2>
      {children}
    </section>
  );
}
