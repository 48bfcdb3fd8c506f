import { Button } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconAdjustments } from "@tabler/icons-react";
import { lazy, Suspense, useState } from "react";

import type { Run } from "../api/schema.d.ts";
import { canPause } from "./ended.ts";

const ChangeDialog = lazy(() => import("./change-dialog.tsx"));

/** Opens the settings that an active run can change. The code of the dialog loads when it first opens. */
export function ChangeButton({ run }: { run: Run }) {
  const [opened, { open, close }] = useDisclosure(false);
  const [wasOpened, setWasOpened] = useState(false);
  if (run.kind !== "rl" || !canPause(run.status)) return null;
  return (
    <>
      <Button variant="default" leftSection={<IconAdjustments size={14} />} onClick={() => { setWasOpened(true); open(); }} data-testid="change">Change</Button>
      {wasOpened && <Suspense fallback={null}><ChangeDialog run={run} opened={opened} close={close} /></Suspense>}
    </>
  );
}
