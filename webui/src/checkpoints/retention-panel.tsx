import { Button, Group, Modal } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { retention } from "../api/checkpoint-queries.ts";
import * as queries from "../api/queries.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { ApplyRetention } from "./apply-retention.tsx";
import { EditRetention } from "./edit-retention.tsx";
import { rulesInWords } from "./retention.ts";
import classes from "./retention-panel.module.css";

/** Which checkpoints the project keeps, and what that would delete now. */
export function RetentionPanel() {
  const { data: policy, error, refetch } = useQuery(retention);
  const mayChange = useQuery(queries.me).data?.scopes.includes("checkpoints:admin") ?? false;
  const dialog = useDialog<"edit" | "apply">();
  const rules = policy === undefined ? [] : rulesInWords(policy);
  return (
    <Panel title="Retention" aside={mayChange && policy !== undefined && <Button variant="default" onClick={() => dialog.show("edit")}>{rules.length === 0 ? "Set a policy" : "Change"}</Button>}>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {policy === undefined ? (error === null ? <Waiting /> : null) : (
        <div className={classes.policy} data-testid="retention">
          {rules.length === 0
            ? <p>Every checkpoint is kept: this project has no retention policy.{mayChange ? "" : " A role with checkpoints:admin can set one."}</p>
            : (
              <>
                <p>Keeps</p>
                <ul>{rules.map((rule) => <li key={rule}>{rule}</li>)}<li>what an alias, a pin or a run needs</li></ul>
                <p>{(policy.kinds ?? []).length > 0 ? `Of the others it deletes ${policy.kinds!.join(" and ")} checkpoints` : "It deletes the others"}, {policy.automatic ? "every ten minutes." : "only when somebody applies it."}</p>
                <Group><Button variant="default" onClick={() => dialog.show("apply")}>Preview what it deletes</Button></Group>
              </>
            )}
        </div>
      )}
      {dialog.shown !== null && policy !== undefined && (
        <Modal opened onClose={dialog.close} returnFocus={false} title={dialog.shown === "edit" ? "Retention policy" : "What the retention policy deletes now"}>
          {dialog.shown === "edit" ? <EditRetention policy={policy} done={dialog.close} /> : <ApplyRetention mayApply={mayChange} done={dialog.close} />}
        </Modal>
      )}
    </Panel>
  );
}
