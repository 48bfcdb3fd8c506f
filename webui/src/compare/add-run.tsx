import { Loader, Select } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";

import * as queries from "../api/queries.ts";
import { words } from "../common/format.ts";
import { MAX_RUNS, runIds, type Slots } from "./compare-view.ts";

const SHOWN = 20;
const DEBOUNCE_MILLISECONDS = 150;

/** A search field that adds a run to the comparison. The server searches by name. */
export function AddRun({ slots, onAdd }: { slots: Slots; onAdd: (id: string) => void }) {
  const [typed, setTyped] = useState("");
  const [settled] = useDebouncedValue(typed.trim(), DEBOUNCE_MILLISECONDS);
  const { data, isPending, isPlaceholderData } = useInfiniteQuery({ ...queries.runs(settled === "" ? {} : settled.startsWith("run_") ? { text: settled } : { name: settled }, SHOWN), placeholderData: keepPreviousData });
  const isSearching = isPending || isPlaceholderData || settled !== typed.trim();
  const isFull = runIds(slots).length >= MAX_RUNS;
  const found = (data?.pages[0]?.data ?? []).filter(({ id }) => !slots.includes(id));
  return (
    <Select
      aria-label="Add a run" placeholder={isFull ? `At most ${MAX_RUNS} runs` : "Add a run"} disabled={isFull} searchable w={260} maxDropdownHeight={320}
      value={null} searchValue={typed} onSearchChange={setTyped} filter={({ options }) => options} nothingFoundMessage={isSearching ? "Searching" : "No other run has this name"}
      rightSection={isSearching ? <Loader size={14} /> : undefined}
      data={found.map(({ id, name, status }) => ({ value: id, label: `${name} · ${words(status.toLowerCase())}` }))}
      onChange={(id) => { if (id === null) return; onAdd(id); setTyped(""); }}
    />
  );
}
