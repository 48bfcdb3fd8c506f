import { useQuery } from "@tanstack/react-query";

import { checkpointAliases } from "../api/checkpoint-queries.ts";
import { PageHeader } from "../common/panel.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { AliasDialogs, type AliasDialog } from "./alias-dialogs.tsx";
import { AliasesPanel } from "./aliases-panel.tsx";
import classes from "./checkpoints-page.module.css";
import { RegistryPanel } from "./registry-panel.tsx";
import { RetentionPanel } from "./retention-panel.tsx";

/** The project's registry, with the names that point into it and the policy that cleans it up. */
export function CheckpointsPage() {
  const aliases = useQuery(checkpointAliases);
  const dialog = useDialog<AliasDialog>();
  return (
    <>
      <PageHeader title="Checkpoints">
        Saved states of runs. Evaluate and compare them, name the good ones with aliases, and start runs from them.
      </PageHeader>
      <div className={classes.columns}>
        <RegistryPanel aliases={aliases.data?.data ?? []} showDialog={dialog.show} />
        <div className={classes.side}>
          <AliasesPanel aliases={aliases} showDialog={dialog.show} />
          <RetentionPanel />
        </div>
      </div>
      <AliasDialogs shown={dialog.shown} showDialog={dialog.show} close={dialog.close} />
    </>
  );
}
