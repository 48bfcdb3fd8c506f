import { Button } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery } from "@tanstack/react-query";

import { post } from "../api/http.ts";
import { tokens as tokensQuery } from "../api/team-queries.ts";
import type { Me } from "../api/schema.d.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { NewToken } from "../tokens/new-token.tsx";
import { TokensTable } from "../tokens/tokens-table.tsx";
import classes from "./account.module.css";

/** The caller's own tokens of the project. Every role may have some; a token grants no more than the role. */
export function OwnTokens({ me }: { me: Me }) {
  const query = useInfiniteQuery(tokensQuery());
  const { shown, show, close } = useDialog<"new">();
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  const newButton = <Button onClick={() => show("new")} leftSection={<IconPlus size={14} />}>New token</Button>;
  return (
    <div id="tokens">
      <Panel title={`Your tokens of ${me.project.name}`} aside={list.length > 0 ? newButton : undefined} flush>
        <p className={classes.note}>For the command line, the SDK and CI. A token works in this project only, with those of its scopes that your role ({me.role}) grants at that moment.</p>
        <ProblemNotice error={query.error} retry={() => void query.refetch()} />
        {query.isPending ? <Waiting label="Loading tokens" /> : query.data === undefined ? null : list.length === 0
          ? <Empty title="No tokens yet" action={newButton}>A token is shown once, when you create it. Only its hash is stored.</Empty>
          : <TokensTable tokens={list} mayRotate={() => true} />}
        <More query={query} />
      </Panel>
      {shown === "new" && <NewToken title="New token" available={me.scopes} allLabel="All that your role allows, also after it changes" create={(body) => post("/api/v1/tokens", { body })} onClose={close} />}
    </div>
  );
}
