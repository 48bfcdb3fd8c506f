import { Button, SegmentedControl, TextInput } from "@mantine/core";
import { useDebouncedCallback, useLocalStorage, useMediaQuery } from "@mantine/hooks";
import { IconPlus, IconRefresh, IconX } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Link, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { BulkBar } from "./bulk-bar.tsx";
import { RunCards } from "./run-cards.tsx";
import { chosenColumns, DEFAULT_COLUMNS, toggled, type ChosenColumn, type ColumnId } from "./run-columns.ts";
import { chips, isFiltered, listQuery, QUICK_FILTERS, withQuickFilter, without } from "./run-list-view.ts";
import { moveActive, toggleRow } from "./run-selection.ts";
import { RunsTable } from "./runs-table.tsx";
import { SavedViews } from "./saved-views.tsx";
import classes from "./runs-page.module.css";
import { MAX_REFETCHED_PAGES, useCurves, useRunList } from "./use-run-list.ts";
import { useListKeys } from "./use-list-keys.ts";

const PHONE = "(max-width: 700px)";
const SEARCH_MILLISECONDS = 150;
const ROWS_BEFORE_END = 30; // the next page is fetched when the view is this near to the last row

export function RunsPage() {
  const [search, setSearch] = useSearchParams();
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const name = search.get("name") ?? "";
  const [stored, setStored] = useLocalStorage<unknown>({ key: "oolong.runs.columns", defaultValue: DEFAULT_COLUMNS, getInitialValueInEffect: false });
  const inAddress = search.get("columns");
  const columns = useMemo(() => chosenColumns(inAddress?.split(",") ?? stored), [inAddress, stored]);
  // The choice stays for the next visit, and the address shows it to whom it is sent.
  const toggleColumn = (id: ColumnId) => {
    const chosen = toggled(columns.map((column) => column.id), id);
    setStored(chosen);
    set("columns", chosen.join());
  };
  const set = (key: string, value: string) => setSearch((old) => { if (value === "") old.delete(key); else old.set(key, value); return old; }, { replace: true });
  return (
    <>
      <PageHeader title="Runs" aside={readOnly === null ? <Button component={Link} to="/runs/new" leftSection={<IconPlus size={14} />}>Start a run</Button> : <span title={readOnly}>Read-only access</span>} />
      <div className={classes.tools}>
        <div className={classes.quick}>
          <SegmentedControl value={search.get("condition") ?? search.get("status") ?? ""} onChange={(value) => setSearch((old) => withQuickFilter(old, value), { replace: true })} data={QUICK_FILTERS} />
        </div>
        <NameSearch name={name} onSearch={(typed) => set("name", typed)} />
        <SavedViews search={search} columns={columns.map(({ id }) => id)} onOpen={(view) => setSearch(view)} />
        {chips(search).map((chip) => (
          <Button key={`${chip.name}=${chip.value}`} variant="light" rightSection={<IconX size={12} />} onClick={() => setSearch((old) => without(old, chip.name, chip.value), { replace: true })} aria-label={`Remove filter: ${chip.name} ${chip.value}`}>{chip.label}</Button>
        ))}
      </div>
      <RunList search={search} readOnly={readOnly} columns={columns} onColumn={toggleColumn} onSort={(sort) => set("sort", sort)} />
    </>
  );
}

/** The search field of the list. It holds what is typed, because the URL follows when the keys rest. */
function NameSearch({ name, onSearch }: { name: string; onSearch: (typed: string) => void }) {
  const [typed, setTyped] = useState(name);
  const isTyping = useRef(false);
  const search = useDebouncedCallback((value: string) => {
    isTyping.current = false;
    onSearch(value);
  }, SEARCH_MILLISECONDS);
  useEffect(() => {
    if (!isTyping.current) setTyped(name); // the URL changed: a link, a removed filter, or back
  }, [name]);
  const type = (value: string) => {
    isTyping.current = true;
    setTyped(value);
    search(value);
  };
  return <TextInput type="search" placeholder="Search by name  /" aria-label="Search by name" className={classes.search} value={typed} onChange={(event) => type(event.currentTarget.value)} />;
}

type RunListProps = { search: URLSearchParams; readOnly: string | null; columns: ChosenColumn[]; onColumn: (id: ColumnId) => void; onSort: (sort: string) => void };

function RunList({ search, readOnly, columns, onColumn, onSort }: RunListProps) {
  const filter = listQuery(search);
  const listKey = JSON.stringify(filter);
  const query = useRunList(filter);
  const isPhone = useMediaQuery(PHONE, undefined, { getInitialValueInEffect: false });
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [anchor, setAnchor] = useState<number | null>(null);
  const [active, setActive] = useState<number | null>(null);
  const [visible, setVisible] = useState({ first: 0, last: 0 });
  const onVisible = useCallback((first: number, last: number) => setVisible({ first, last }), []);

  const pages = useMemo(() => query.data?.pages.map((page) => page.data) ?? [], [query.data]);
  const runs = useMemo(() => pages.flat(), [pages]);
  const ids = useMemo(() => runs.map((run) => run.id), [runs]);
  const chosen = useMemo(() => runs.filter((run) => selected.has(run.id)), [runs, selected]);
  const curves = useCurves(pages, visible, isPhone === true || columns.some((column) => column.id === "curve"));

  const clear = () => { setSelected(new Set()); setAnchor(null); };
  useEffect(() => { clear(); setActive(null); }, [listKey]); // what is not in the list any more cannot be acted on
  const { hasNextPage, isFetching, isFetchingNextPage, fetchNextPage } = query;
  useEffect(() => {
    if (hasNextPage && !isFetching && visible.last >= runs.length - ROWS_BEFORE_END) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage, visible.last, runs.length]);

  const toggle = (index: number, range: boolean) => {
    setSelected((old) => toggleRow(old, ids, index, range ? anchor : null));
    setAnchor(index);
  };
  useListKeys({
    move: (key) => setActive((old) => moveActive(old, key, runs.length)),
    toggle: () => { if (active !== null) toggle(active, false); },
    clear,
  });

  const isStale = query.isStale && pages.length > MAX_REFETCHED_PAGES;
  const more = query.hasNextPage ? ", more below" : "";
  return (
    <>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel className={classes.list}>
        {query.isPending ? <Waiting /> : query.data === undefined ? null : runs.length === 0 ? <NoRuns filtered={isFiltered(search)} /> : (
          <>
            <BulkBar
              loaded={`${runs.length} ${runs.length === 1 ? "run" : "runs"}${more}`} runs={chosen} readOnly={readOnly} onClear={clear}
              columns={columns} onColumn={isPhone ? null : onColumn}
            />
            {isStale && <Button variant="light" fullWidth radius={0} leftSection={<IconRefresh size={14} />} loading={query.isRefetching && !isFetchingNextPage} onClick={() => void query.refetch()}>The list has changed. Load it again.</Button>}
            {isPhone
              ? <RunCards key={listKey} runs={runs} curves={curves} selected={selected} onToggle={toggle} onVisible={onVisible} />
              : (
                <RunsTable
                  key={listKey} listKey={listKey} runs={runs} columns={columns} curves={curves} sort={filter.sort ?? ""} selected={selected} active={active} busy={query.isPlaceholderData}
                  onSort={onSort} onToggle={toggle} onVisible={onVisible}
                  onToggleAll={() => setSelected(chosen.length === runs.length ? new Set() : new Set(ids))}
                />
              )}
            <p className={classes.foot} hidden={isPhone && !isFetchingNextPage}>
              {isFetchingNextPage ? "Loading more runs" : isPhone ? "" : <><kbd>j</kbd> <kbd>k</kbd> move · <kbd>Enter</kbd> open · <kbd>x</kbd> select · Shift selects a range</>}
            </p>
          </>
        )}
      </Panel>
    </>
  );
}

function NoRuns({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No matching runs" action={<Button variant="default" component={Link} to="/runs">Clear filters</Button>}>No run of this project has this name, state and tags.</Empty>;
  return (
    <Empty title="No runs yet" action={<Button component={Link} to="/runs/new">Start a run</Button>}>
      A run trains a model on a dataset version with a reward. It needs <Link to="/datasets">a dataset</Link> and <Link to="/models">a base model</Link>.
    </Empty>
  );
}

