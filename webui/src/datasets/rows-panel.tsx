import { Group, Select, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { IconSearch } from "@tabler/icons-react";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Version } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { RowsTable } from "./rows-table.tsx";

const ORDER = ["row", "messages", "answer", "completion", "chosen", "rejected", "split", "source"];

/** The rows as the policy sees them, page by page. The server searches; the search is in the URL. */
export function RowsPanel({ version }: { version: Version }) {
  const [search, setSearch] = useSearchParams();
  const [text, setText] = useState(search.get("q") ?? "");
  const [settled] = useDebouncedValue(text.trim(), 300);
  const split = search.get("split") !== null && search.get("split")! in version.splits ? search.get("split")! : "";
  useEffect(() => {
    setSearch((old) => { const next = new URLSearchParams(old); if (settled === "") next.delete("q"); else next.set("q", settled); return next; }, { replace: true });
  }, [settled]);
  const query = useInfiniteQuery({ ...queries.datasetRows(version.id, { ...(settled === "" ? {} : { q: settled }), ...(split === "" ? {} : { split }) }), placeholderData: keepPreviousData });
  const rows = query.data?.pages.flatMap((page) => page.data) ?? [];
  const total = split === "" ? version.rows : version.splits[split];
  return (
    <Panel
      title={`Rows of ${version.ref}`} flush
      aside={(
        <Group gap={8}>
          <span>{grouped(total)} {split === "" ? "in total" : `in ${split}`}</span>
          <Select aria-label="Split" w={160} data={[{ value: "", label: "All splits" }, ...Object.keys(version.splits).map((name) => ({ value: name, label: name }))]} value={split} allowDeselect={false} onChange={(value) => setSearch((old) => { const next = new URLSearchParams(old); if (!value) next.delete("split"); else next.set("split", value); return next; }, { replace: true })} />
          <TextInput type="search" aria-label="Search in the rows" placeholder="Search prompts and answers" w={230} leftSection={<IconSearch size={14} aria-hidden />} value={text} onChange={(event) => setText(event.currentTarget.value)} />
        </Group>
      )}
    >
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting /> : rows.length === 0 && query.error === null
        ? <Empty title="No row matches">Nothing in {split === "" ? version.ref : `the split ${split}`} contains “{settled}”. Case is ignored; prompts, answers and completions are searched.</Empty>
        : <div style={{ opacity: query.isPlaceholderData ? 0.5 : 1 }} data-testid="rows"><RowsTable rows={rows} order={ORDER} /></div>}
      <More query={query} />
    </Panel>
  );
}
