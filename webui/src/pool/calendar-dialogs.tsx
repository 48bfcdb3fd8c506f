import "@mantine/core/styles/NumberInput.css";
import { Button, Checkbox, Group, Modal, MultiSelect, NumberInput, Select, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { projectQuotas } from "../api/team-queries.ts";
import type { Pool } from "../api/schema.d.ts";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { periodBody, UNIT_SECONDS, type PeriodForm, type Unit } from "./calendar.ts";

const PERIOD: PeriodForm = { start: "", amount: 8, unit: "hours" };
const PERIOD_FIELDS = ["/starts_at", "/ends_at", "/duration_seconds"];

/** Reserves slots of the pool for a team. */
export function ReserveSlots({ pool, onClose }: { pool: Pool; onClose: () => void }) {
  const { data: teams } = useQuery(queries.poolTeams(pool.name));
  const [team, setTeam] = useState<string | null>(null);
  const { data: projects } = useQuery({ ...projectQuotas(pool.name, team ?? ""), enabled: team !== null });
  const [project, setProject] = useState<string | null>(null);
  const [by, setBy] = useState<"slots" | "nodes">("slots");
  const [slots, setSlots] = useState<number | string>(1);
  const [nodes, setNodes] = useState<string[]>([]);
  const [period, setPeriod] = useState(PERIOD);
  const [reason, setReason] = useState("");
  const which = by === "slots" ? { slots: Number(slots) } : { nodes };
  const act = useSave(pool, onClose, () =>
    post("/api/v1/pools/{pool_name}/reservations", {
      path: { pool_name: pool.name },
      body: { team: team ?? "", ...(project === null ? {} : { project }), ...which, ...periodBody(period), ...(reason === "" ? {} : { reason }) },
    }));
  const isFilled = team !== null && Number(period.amount) > 0 && (by === "slots" ? Number(slots) > 0 : nodes.length > 0);
  return (
    <Modal opened onClose={onClose} title="Reserve slots" size="lg">
      <form onSubmit={(event) => { event.preventDefault(); act.mutate(); }}>
        <Stack gap="sm">
          <Text size="sm">Runs of the team start on these slots beyond its quota. Others use them before only if they end in time or can save a checkpoint; five minutes before the start, the ones that are left save a checkpoint and return to the queue.</Text>
          <TextInput label="Reason (optional)" data-autofocus maxLength={200} placeholder="demo for the board" value={reason} onChange={(event) => setReason(event.currentTarget.value)} error={fieldError(act.error, "/reason")} />
          <Group grow align="flex-start">
            <Select label="Team" searchable placeholder="Choose a team" data={teams?.map(({ team: one }) => ({ value: one.id, label: one.name })) ?? []} value={team}
              onChange={(value) => { setTeam(value); setProject(null); }} error={fieldError(act.error, "/team")} />
            <Select label="Project (optional)" clearable placeholder="all of the team" disabled={team === null} data={projects?.map(({ project: one }) => ({ value: one.id, label: one.name })) ?? []} value={project}
              onChange={setProject} error={fieldError(act.error, "/project")} />
          </Group>
          <SegmentedControl aria-label="What is reserved" value={by} onChange={(value) => setBy(value as "slots" | "nodes")} data={[{ value: "slots", label: "A number of slots" }, { value: "nodes", label: "Whole nodes" }]} />
          {by === "slots"
            ? <NumberInput label="Slots" description="The pool chooses the nodes: whole ones where possible, and those that fewest runs have to leave." min={1} allowDecimal={false} value={slots} onChange={setSlots} error={fieldError(act.error, "/slots")} />
            : <MultiSelect label="Nodes" searchable placeholder={nodes.length === 0 ? "Choose nodes" : ""} data={nodeOptions(pool)} value={nodes} onChange={setNodes} error={fieldError(act.error, "/nodes")} />}
          <Period form={period} onChange={setPeriod} error={act.error} />
          <ProblemNotice error={otherError(act.error, ["/team", "/project", "/slots", "/nodes", "/reason", ...PERIOD_FIELDS])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={act.isPending} disabled={!isFilled}>Reserve slots</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** Plans the maintenance of nodes. */
export function PlanMaintenance({ pool, onClose }: { pool: Pool; onClose: () => void }) {
  const [isWhole, setWhole] = useState(false);
  const [nodes, setNodes] = useState<string[]>([]);
  const [period, setPeriod] = useState<PeriodForm>({ ...PERIOD, amount: 2 });
  const [reason, setReason] = useState("");
  const act = useSave(pool, onClose, () =>
    post("/api/v1/pools/{pool_name}/maintenance", { path: { pool_name: pool.name }, body: { reason, ...(isWhole ? {} : { nodes }), ...periodBody(period) } }));
  const isFilled = reason.trim() !== "" && Number(period.amount) > 0 && (isWhole || nodes.length > 0);
  return (
    <Modal opened onClose={onClose} title="Plan maintenance" size="lg">
      <form onSubmit={(event) => { event.preventDefault(); act.mutate(); }}>
        <Stack gap="sm">
          <Text size="sm">Nothing is placed on the nodes that would outlive the start. Fifteen minutes before it they are drained: runs with a trainer save a checkpoint and continue elsewhere, and what is left is stopped at the start. At the end the nodes accept jobs again by themselves.</Text>
          <TextInput label="Reason" description="Shown to those who wait." data-autofocus maxLength={200} placeholder="new fans" value={reason} onChange={(event) => setReason(event.currentTarget.value)} error={fieldError(act.error, "/reason")} />
          <MultiSelect label="Nodes" searchable disabled={isWhole} placeholder={nodes.length === 0 ? "Choose nodes" : ""} data={nodeOptions(pool)} value={nodes} onChange={setNodes} error={fieldError(act.error, "/nodes")} />
          <Checkbox label="Every node of the pool" checked={isWhole} onChange={(event) => setWhole(event.currentTarget.checked)} />
          <Period form={period} onChange={setPeriod} error={act.error} />
          <ProblemNotice error={otherError(act.error, ["/nodes", "/reason", ...PERIOD_FIELDS])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={act.isPending} disabled={!isFilled}>Plan maintenance</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function Period({ form, onChange, error }: { form: PeriodForm; onChange: (form: PeriodForm) => void; error: unknown }) {
  return (
    <Group align="flex-start" gap={8}>
      <TextInput type="datetime-local" label="Start, in the browser's zone" description="Empty: now." value={form.start} onChange={(event) => onChange({ ...form, start: event.currentTarget.value })} error={fieldError(error, "/starts_at")} />
      <NumberInput label="Duration" description="From the start on." min={1} w={140} value={form.amount} onChange={(amount) => onChange({ ...form, amount })} error={fieldError(error, "/ends_at") ?? fieldError(error, "/duration_seconds")} />
      <Select label="Unit" description="Of the duration." w={130} allowDeselect={false} data={Object.keys(UNIT_SECONDS)} value={form.unit} onChange={(unit) => onChange({ ...form, unit: unit as Unit })} />
    </Group>
  );
}

const nodeOptions = (pool: Pool) => pool.nodes.map(({ id, name }) => ({ value: id, label: name }));

function useSave(pool: Pool, onClose: () => void, save: () => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: save,
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ["pool", pool.name] });
      onClose();
    },
  });
}
