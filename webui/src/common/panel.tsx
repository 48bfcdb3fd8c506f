import type { ReactNode } from "react";

import classes from "./panel.module.css";
import { usePageTitle } from "./use-page-title.ts";

type Props = { title?: ReactNode; aside?: ReactNode; children: ReactNode; flush?: boolean; className?: string };

/** A titled box. `flush` removes the inner padding, for tables. */
export function Panel({ title, aside, children, flush = false, className }: Props) {
  return (
    <section className={`${classes.panel} ${className ?? ""}`}>
      {(title !== undefined || aside !== undefined) && (
        <header className={classes.header}>
          <h2 className={classes.title}>{title}</h2>
          <div className={classes.aside}>{aside}</div>
        </header>
      )}
      <div className={flush ? classes.flush : classes.body}>{children}</div>
    </section>
  );
}

/** The heading of a page, which is also the title of its browser tab. */
export function PageHeader({ title, aside, children }: { title: string; aside?: ReactNode; children?: ReactNode }) {
  usePageTitle(title);
  return (
    <div className={classes.page}>
      <div>
        <h1 className={classes.heading}>{title}</h1>
        {children !== undefined && <div className={classes.lead}>{children}</div>}
      </div>
      <div className={classes.aside}>{aside}</div>
    </div>
  );
}

/** A label above its value. */
export function Fact({ label, children, help }: { label: string; children: ReactNode; help?: string }) {
  return (
    <div className={classes.fact} title={help}>
      <dt>{label}</dt>
      <dd className="tabular">{children}</dd>
    </div>
  );
}

export function Facts({ children }: { children: ReactNode }) {
  return <dl className={classes.facts}>{children}</dl>;
}
