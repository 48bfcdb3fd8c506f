import { Button, Group, Modal, Select, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import type { Token } from "../api/schema.d.ts";
import { moment } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { ShownOnce } from "../common/shown-once.tsx";

const OVERLAPS = [
  { value: "0", label: "not at all" }, { value: "3600", label: "for an hour" }, { value: "86400", label: "for a day" }, { value: "604800", label: "for a week" },
];

/** Gives a token a new secret. The old one keeps working for a while, so that nobody is cut off in between. */
export function RotateToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const [overlap, setOverlap] = useState("3600");
  const client = useQueryClient();
  const rotate = useMutation({
    mutationFn: () => post("/api/v1/tokens/{token_id}/rotate", { path: { token_id: token.id }, body: { overlap_seconds: Number(overlap) } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["tokens"] }),
  });
  return (
    <Modal opened onClose={onClose} title={`Rotate ${token.name}`}>
      {rotate.data !== undefined ? (
        <ShownOnce what="token" value={rotate.data.token} onDone={onClose}>
          {overlap === "0" ? "The old one has stopped working." : `The old one works until ${moment(rotate.data.previous_until)}.`}
        </ShownOnce>
      ) : (
        <Stack gap="sm">
          <Text size="sm">The token gets a new secret, with the same name, scopes and end. {token.previous_until !== null && "A secret that still works from the last rotation ends now."}</Text>
          <Select label="The old secret keeps working" allowDeselect={false} data={OVERLAPS} value={overlap} onChange={(value) => setOverlap(value!)} description={overlap === "0" ? "Whoever uses it fails until they have the new one." : "Give the new one to whoever uses it in this time."} inputWrapperOrder={["label", "input", "error", "description"]} />
          <ProblemNotice error={rotate.error} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button loading={rotate.isPending} onClick={() => rotate.mutate()}>Rotate</Button>
          </Group>
        </Stack>
      )}
    </Modal>
  );
}
