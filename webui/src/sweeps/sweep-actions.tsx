import { Button, Group, Modal, Text } from "@mantine/core";
import { IconPlayerPause, IconPlayerPlay, IconPlayerStop } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Sweep } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { actionsOf, effects, type SweepAction } from "./trials.ts";

const LABELS = {
  pause: { button: "Pause", title: "Pause this sweep?", confirm: "Pause sweep", icon: IconPlayerPause },
  resume: { button: "Resume", title: "Resume this sweep?", confirm: "Resume sweep", icon: IconPlayerPlay },
  cancel: { button: "Cancel", title: "Cancel this sweep?", confirm: "Cancel sweep", icon: IconPlayerStop },
} as const;

/** Pause, resume and cancel, each after its effects are said. */
export function SweepActions({ sweep, readOnly }: { sweep: Sweep; readOnly: string | null }) {
  const dialog = useDialog<SweepAction>();
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: (action: SweepAction) => post(`/api/v1/sweeps/{sweep_id}/${action}`, { path: { sweep_id: sweep.id } }),
    onSuccess: (changed) => {
      client.setQueryData(queries.sweep(sweep.id).queryKey, changed);
      void client.invalidateQueries({ queryKey: ["sweeps"] });
      dialog.close();
    },
  });
  const { shown } = dialog;
  return (
    <>
      {actionsOf(sweep.status).map((action) => {
        const { button, icon: Icon } = LABELS[action];
        return <Button key={action} variant={action === "cancel" ? "light" : "default"} color={action === "cancel" ? "red" : undefined} leftSection={<Icon size={14} />} disabled={readOnly !== null} title={readOnly ?? undefined} onClick={() => { act.reset(); dialog.show(action); }} data-testid={`${action}-sweep`}>{button}</Button>;
      })}
      {shown !== null && (
        <Modal opened onClose={dialog.close} title={LABELS[shown].title}>
          <ProblemNotice error={act.error} />
          <Text size="sm" mb="md">{effects(shown, sweep)}</Text>
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={dialog.close} data-autofocus>{shown === "cancel" ? "Keep sweep" : "Back"}</Button>
            <Button color={shown === "cancel" ? "red" : undefined} loading={act.isPending} onClick={() => act.mutate(shown)} data-testid="confirm-sweep">{LABELS[shown].confirm}</Button>
          </Group>
        </Modal>
      )}
    </>
  );
}
