import { Button, Group, Modal, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { put } from "../api/http.ts";
import { poolPrices } from "../api/team-queries.ts";
import type { Pool, Prices } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { useDialog } from "../common/use-dialog.ts";
import classes from "./admin.module.css";

type Price = Prices["prices"][number];

const OTHERS = "Every model without a price";
const nameOf = ({ device, gpu_model }: Pick<Price, "device" | "gpu_model">) => (gpu_model === "" ? `${device} slots` : gpu_model);
const set = (pool: string, body: { device: Price["device"]; gpu_model: string; per_hour: string | null }) => put("/api/v1/pools/{pool_name}/prices", { path: { pool_name: pool }, body });

/** What an hour of a slot costs, by device and model. */
export function PoolPrices({ pool }: { pool: Pool }) {
  const { data, error, refetch } = useQuery(poolPrices(pool.name));
  const { shown, show, close } = useDialog<{ kind: "set"; price: Price | null } | { kind: "remove"; price: Price }>();
  return (
    <Panel title="Prices" aside={<Button variant="default" onClick={() => show({ kind: "set", price: null })}>Set a price</Button>} flush>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {data === undefined ? error === null && <Waiting label="Loading prices" /> : data.prices.length === 0 ? <p className={classes.note}>None, so usage has no cost. A price counts for slots that are granted from then on.</p> : (
        <Table className="tabular" data-testid="prices">
          <Table.Tbody>
            {data.prices.map((price) => (
              <Table.Tr key={`${price.device} ${price.gpu_model}`}>
                <Table.Td>{nameOf(price)}<div className={classes.soft}>{price.gpu_model === "" ? "every model without a price" : price.device}</div></Table.Td>
                <Table.Td ta="right">{Number(price.per_hour).toFixed(2)} {data.currency} per hour</Table.Td>
                <Table.Td ta="right">
                  <Button variant="subtle" px={8} aria-label={`Change the price of ${nameOf(price)}`} onClick={() => show({ kind: "set", price })}>Change</Button>
                  <Button variant="subtle" color="red" px={8} aria-label={`Remove the price of ${nameOf(price)}`} onClick={() => show({ kind: "remove", price })}>Remove</Button>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      {shown?.kind === "set" && data !== undefined && <SetPrice pool={pool} currency={data.currency} price={shown.price} onClose={close} />}
      {shown?.kind === "remove" && (
        <Confirm title={`Remove the price of ${nameOf(shown.price)}?`} action="Remove" changes={[poolPrices(pool.name).queryKey]} onClose={close} run={() => set(pool.name, { ...shown.price, per_hour: null })}>
          Slots that are granted from now on have {shown.price.gpu_model === "" ? "no price" : "the price of their device, if there is one"}. What was used keeps its cost.
        </Confirm>
      )}
    </Panel>
  );
}

function SetPrice({ pool, currency, price, onClose }: { pool: Pool; currency: string; price: Price | null; onClose: () => void }) {
  const devices = [...new Set([...pool.slots.map(({ device }) => device), "cuda", "cpu"])];
  const [device, setDevice] = useState(price?.device ?? devices[0] ?? "cuda");
  const [model, setModel] = useState(price?.gpu_model ?? "");
  const [perHour, setPerHour] = useState(price === null ? "" : String(Number(price.per_hour)));
  const models = [...new Set(pool.slots.filter((slot) => slot.device === device && slot.model !== "").map((slot) => slot.model))];
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => set(pool.name, { device: device as Price["device"], gpu_model: model, per_hour: perHour.trim() }),
    onSuccess: (found) => {
      client.setQueryData(poolPrices(pool.name).queryKey, found);
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title={price === null ? "Set a price" : `Price of ${nameOf(price)}`}>
      <form onSubmit={(event) => { event.preventDefault(); act.mutate(); }}>
        <Stack gap="sm">
          {price === null && (
            <>
              <Select label="Device" data={devices} allowDeselect={false} value={device} onChange={(value) => { setDevice((value ?? device) as Price["device"]); setModel(""); }} error={fieldError(act.error, "/device")} />
              <Select label="Model" data={[{ value: "", label: OTHERS }, ...models]} allowDeselect={false} value={model} onChange={(value) => setModel(value ?? "")} error={fieldError(act.error, "/gpu_model")} />
            </>
          )}
          <TextInput label="Price of one slot" description={`${currency} per hour`} inputMode="decimal" required data-autofocus value={perHour} onChange={(event) => setPerHour(event.currentTarget.value)} error={fieldError(act.error, "/per_hour")} />
          <Text size="xs" c="dimmed">Slots that are held now keep the price at which they were granted.</Text>
          <ProblemNotice error={otherError(act.error, ["/device", "/gpu_model", "/per_hour"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={act.isPending} disabled={perHour.trim() === ""}>Set price</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
