import { Button, CopyButton, SegmentedControl, Select, Table } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconTemplate } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { stringify } from "yaml";

import * as queries from "../../api/queries.ts";
import type { RunDetail } from "../../api/schema.d.ts";
import { specDiff } from "../../compare/spec-diff.ts";
import type { Json } from "../../common/json.ts";
import { Empty, ProblemNotice, Waiting } from "../../common/notices.tsx";
import { Panel } from "../../common/panel.tsx";
import { may } from "../../common/permission.ts";
import stacked from "../../common/stacked.module.css";
import { inOrder, withoutDefaults } from "../../start/spec-order.ts";
import { changesFromDefaults } from "./default-changes.ts";
import classes from "./spec-view.module.css";

const SaveTemplateDialog = lazy(() => import("../../start/save-template.tsx"));

const VIEWS = [{ value: "resolved", label: "Resolved" }, { value: "submitted", label: "Submitted" }, { value: "changes", label: "Differences" }];
const DEFAULTS = "defaults";

/** The spec with all defaults, as it was submitted, or where it differs from the defaults or from another run. */
export default function SpecView({ run }: { run: RunDetail }) {
  const [search, setSearch] = useSearchParams();
  const view = VIEWS.find(({ value }) => value === search.get("spec"))?.value ?? "resolved";
  const against = search.get("against") ?? DEFAULTS;
  const set = (name: string, value: string) => setSearch((old) => { old.set(name, value); return old; }, { replace: true, preventScrollReset: true });
  const mayWrite = may(useQuery(queries.me).data, "runs:write");
  const [isSaving, setSaving] = useState(false);
  const spec = view === "resolved" ? inOrder(run.spec) : submittedSpec(run);
  const text = stringify(spec, { lineWidth: 110 });
  return (
    <Panel
      title={<SegmentedControl aria-label="Spec" value={view} onChange={(value) => set("spec", value)} data={VIEWS} />}
      aside={view === "changes"
        ? <Against run={run} chosen={against} onChoose={(value) => set("against", value)} />
        : (
          <>
            {mayWrite && <Button variant="default" leftSection={<IconTemplate size={14} />} onClick={() => setSaving(true)} data-testid="save-template">Save as template</Button>}
            <CopyButton value={text}>{({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? "Copied" : "Copy as YAML"}</Button>}</CopyButton>
          </>
        )}
    >
      {isSaving && <Suspense fallback={null}><SaveTemplateDialog spec={templateOf(run)} onSaved={(ref) => notifications.show({ message: `The spec is saved as ${ref}` })} onClose={() => setSaving(false)} /></Suspense>}
      {view === "resolved" && <p className={classes.about}>What the run works with: every default filled in, and names replaced by ids.</p>}
      {view === "submitted" && <p className={classes.about}>{run.submitted_spec === null ? "The run was submitted before the text of specs was kept. These are its fields that are not at their default." : "As it was written, with its names and without defaults."}</p>}
      {view !== "changes" ? <pre className={classes.text} tabIndex={0} aria-label="Spec" data-testid="run-spec">{text}</pre> : against === DEFAULTS ? <FromDefaults run={run} /> : <FromRun run={run} otherId={against} />}
    </Panel>
  );
}

const submittedSpec = (run: RunDetail): Json => (run.submitted_spec === null ? withoutDefaults(run.spec) : inOrder(run.submitted_spec));

/** What other runs can begin with: the spec as it was submitted, without what belongs to this run alone. */
function templateOf(run: RunDetail): Json {
  const { name: _name, notes: _notes, ...shared } = submittedSpec(run);
  return shared;
}

function Against({ run, chosen, onChoose }: { run: RunDetail; chosen: string; onChoose: (value: string) => void }) {
  const listed = useInfiniteQuery(queries.runs({})).data?.pages[0]?.data ?? [];
  const parent = run.parent === null ? [] : [{ value: run.parent.id, label: `${run.parent.name} (its parent)` }];
  const others = listed.filter(({ id }) => id !== run.id && id !== run.parent?.id).map(({ id, name }) => ({ value: id, label: name }));
  const options = [{ value: DEFAULTS, label: "the defaults" }, ...parent, ...others];
  const data = options.some(({ value }) => value === chosen) ? options : [...options, { value: chosen, label: chosen }];
  return <Select aria-label="Compare with" data={data} value={chosen} searchable allowDeselect={false} onChange={(value) => { if (value !== null) onChoose(value); }} data-testid="compare-with" />;
}

function FromDefaults({ run }: { run: RunDetail }) {
  const rows = changesFromDefaults(run.spec).map(({ path, value, byDefault }) => ({ path, cells: [value, byDefault] }));
  return <Differences heads={[run.name, "Default"]} rows={rows} same="Every field is at its default." />;
}

function FromRun({ run, otherId }: { run: RunDetail; otherId: string }) {
  const other = useQuery(queries.run(otherId));
  if (other.error !== null) return <ProblemNotice error={other.error} retry={() => void other.refetch()} />;
  if (other.data === undefined) return <Waiting label="Loading the other run" />;
  return (
    <>
      <Differences heads={[run.name, other.data.name]} rows={specDiff([run, other.data])} same="The resolved specs are the same." />
      <p className={classes.about}><Link to={`/runs/compare?runs=${run.id},${otherId}`}>Compare their results</Link></p>
    </>
  );
}

function Differences({ heads, rows, same }: { heads: string[]; rows: { path: string; cells: string[] }[]; same: string }) {
  if (rows.length === 0) return <Empty title={same} />;
  return (
    <Table data-testid="spec-changes" className={stacked.stacked}>
      <Table.Thead><Table.Tr><Table.Th>Field</Table.Th>{heads.map((head, index) => <Table.Th key={index}>{head}</Table.Th>)}</Table.Tr></Table.Thead>
      <Table.Tbody>
        {rows.map(({ path, cells }) => (
          <Table.Tr key={path}><Table.Td><code className="mono">{path}</code></Table.Td>{cells.map((cell, index) => <Table.Td key={index} data-label={heads[index]} className={classes.value}>{cell}</Table.Td>)}</Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
