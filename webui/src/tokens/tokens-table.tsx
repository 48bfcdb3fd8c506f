import { Button, Group, Table } from "@mantine/core";

import { remove } from "../api/http.ts";
import type { Token } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { endsSoon, expiryText } from "../common/expiry.ts";
import { ago, moment } from "../common/format.ts";
import { useDialog } from "../common/use-dialog.ts";
import { useNow } from "../common/use-now.ts";
import { RotateToken } from "./rotate-token.tsx";
import { scopesText } from "./scopes.ts";
import classes from "./tokens.module.css";

/** Tokens with their end and last use. `mayRotate`: nobody gets the secret of another person. `withOwner`: says whose they are. */
export function TokensTable({ tokens, mayRotate, withOwner = false }: { tokens: Token[]; mayRotate: (token: Token) => boolean; withOwner?: boolean }) {
  const now = useNow(30_000);
  const { shown, show, close } = useDialog<{ kind: "rotate" | "revoke"; token: Token }>();
  return (
    <>
      <Table className="tabular" data-testid="tokens">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{withOwner ? "Name, owner" : "Name"}</Table.Th><Table.Th className={classes.wide}>Prefix</Table.Th><Table.Th className={classes.wide}>Scopes</Table.Th>
            <Table.Th>Expires</Table.Th><Table.Th>Last used</Table.Th><Table.Th className={classes.wide}>Created</Table.Th><Table.Td />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {tokens.map((token) => (
            <Table.Tr key={token.id}>
              <Table.Td className={classes.name}>{token.name}{withOwner && <div className={classes.owner}>{token.owner}</div>}{token.previous_until !== null && Date.parse(token.previous_until) > now && <div className={classes.soft} title={moment(token.previous_until)}>old secret ends {expiryText(token.previous_until, now)}</div>}</Table.Td>
              <Table.Td className={`${classes.wide} mono`}>{token.prefix}…</Table.Td>
              <Table.Td className={`${classes.wide} ${classes.limited}`}>{scopesText(token.scopes)}</Table.Td>
              <Table.Td className={`${classes.time} ${endsSoon(token.expires_at, now) ? classes.soon : ""}`} title={token.expires_at === null ? undefined : moment(token.expires_at)}>{expiryText(token.expires_at, now)}</Table.Td>
              <Table.Td className={classes.time} title={token.last_used_at === null ? undefined : moment(token.last_used_at)}>{token.last_used_at === null ? "never" : ago(token.last_used_at, now)}</Table.Td>
              <Table.Td className={`${classes.wide} ${classes.time}`} title={moment(token.created_at)}>{ago(token.created_at, now)}</Table.Td>
              <Table.Td>
                <Group gap={2} justify="flex-end" className={classes.actions}>
                  {mayRotate(token) && <Button variant="subtle" px={8} aria-label={`Rotate ${token.name}`} onClick={() => show({ kind: "rotate", token })}>Rotate</Button>}
                  <Button variant="subtle" color="red" px={8} aria-label={`Revoke ${token.name}`} onClick={() => show({ kind: "revoke", token })}>Revoke</Button>
                </Group>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {shown?.kind === "rotate" && <RotateToken token={shown.token} onClose={close} />}
      {shown?.kind === "revoke" && (
        <Confirm title={`Revoke ${shown.token.name}?`} action="Revoke" changes={[["tokens"], ["service-accounts"]]} onClose={close} run={() => remove("/api/v1/tokens/{token_id}", { path: { token_id: shown.token.id } })}>
          Requests with this token fail from now on, and streams that it opened end. Runs that it started continue. You cannot undo this.
        </Confirm>
      )}
    </>
  );
}
