import { Button, Group, Loader, Table, Text } from "@mantine/core";
import { IconCircleCheck } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { post } from "../api/http.ts";
import type { WhatIfOutcome } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { useNow } from "../common/use-now.ts";
import { etaText } from "./eta.ts";
import classes from "./pool-page.module.css";

/** When a waiting run would start with fewer engines, on another device or in another pool. */
export function WhatIf({ runId, close }: { runId: string; close: () => void }) {
  const { data, error, isPending, refetch } = useQuery({
    queryKey: ["pool", "what-if", runId],
    queryFn: () => post("/api/v1/runs/{run_id}/what-if", { path: { run_id: runId } }),
    staleTime: 15_000,
    retry: false,
  });
  return (
    <>
      <Text size="sm" mb={12}>The scheduler places the run with one thing changed. Nothing changes by asking: to use a variant, cancel the run and clone it with that change.</Text>
      {isPending && <Group gap={8} role="status"><Loader size="xs" /><Text size="sm">Placing variants</Text></Group>}
      <ProblemNotice error={error} retry={() => void refetch()} />
      {data !== undefined && (
        <div className={classes.scroll}>
          <Table className="tabular" data-testid="what-if">
            <Table.Thead><Table.Tr><Table.Th>Variant</Table.Th><Table.Th w={170}>Starts</Table.Th></Table.Tr></Table.Thead>
            <Table.Tbody>
              {[data.as_is, ...data.variants].map((outcome) => <Row key={outcome.message} outcome={outcome} />)}
            </Table.Tbody>
          </Table>
        </div>
      )}
      {data?.variants.length === 0 && !data.as_is.starts_now && <Text size="sm" mt={12}>There is nothing to change: one engine, no other device, and no other pool that your team may use.</Text>}
      <Group justify="flex-end" mt={16}>
        <Button variant="default" component={Link} to={`/runs/${runId}`}>Open the run</Button>
        <Button variant="default" onClick={close}>Close</Button>
      </Group>
    </>
  );
}

function Row({ outcome }: { outcome: WhatIfOutcome }) {
  const now = useNow(10_000);
  const { text, detail } = etaText(outcome.start, now);
  return (
    <Table.Tr>
      <Table.Td>{outcome.message}</Table.Td>
      <Table.Td>
        {outcome.starts_now ? <span className={classes.now}><IconCircleCheck size={14} aria-hidden />now</span> : <>{text}<span className={classes.detail}>{detail}</span></>}
        {outcome.sooner && !outcome.starts_now && <span className={classes.detail}>sooner than as it is</span>}
      </Table.Td>
    </Table.Tr>
  );
}
