import { Button, Group, Menu, Table, Text, TextInput } from "@mantine/core";
import { IconDots, IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { members as membersQuery } from "../api/team-queries.ts";
import type { Me, Member } from "../api/schema.d.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import { AddMember, ChangeRole, RemoveMember } from "./member-dialogs.tsx";
import { matchesName, memberActions, MEANINGS, type MemberAction } from "./roles.ts";
import type { TabProps } from "./team-page.tsx";
import classes from "./team.module.css";

const ROWS = 100;
const FEW = 10; // without a search field

type Dialog = { kind: "new" } | { kind: "act"; member: Member; action: MemberAction };

export function MembersTab({ me }: TabProps) {
  const { data: members, error, refetch } = useQuery(membersQuery);
  const { shown, show, close } = useDialog<Dialog>();
  const [query, setQuery] = useState("");
  const [rows, setRows] = useState(ROWS);
  if (members === undefined) return error === null ? <Waiting label="Loading members" /> : <ProblemNotice error={error} retry={() => void refetch()} />;
  const found = members.filter(({ username }) => matchesName(username, query));
  const mayAdd = may(me, "members:admin");
  return (
    <>
      <div className={classes.tools}>
        <p className={classes.lead}>A role in the team is the minimum in each of its projects. The higher of the two roles counts.</p>
        <Group gap={8}>
          {members.length > FEW && <TextInput type="search" aria-label="Search members" placeholder="Search members" value={query} onChange={(event) => setQuery(event.currentTarget.value)} />}
          {mayAdd && <Button onClick={() => show({ kind: "new" })} leftSection={<IconPlus size={14} />}>Add member</Button>}
        </Group>
      </div>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <Panel title="Members" aside={found.length === members.length ? members.length : `${found.length} of ${members.length}`} flush>
        {found.length === 0 ? <p className={classes.note}>No member has {query} in the name.</p> : (
          <Table className="tabular" data-testid="members">
            <Table.Thead><Table.Tr><Table.Th>Name</Table.Th><Table.Th>Role here</Table.Th><Table.Th className={classes.wide}>In the project</Table.Th><Table.Th className={classes.wide}>In the team</Table.Th><Table.Td w={44} /></Table.Tr></Table.Thead>
            <Table.Tbody>{found.slice(0, rows).map((member) => <Row key={member.id} me={me} members={members} member={member} onAct={(action) => show({ kind: "act", member, action })} />)}</Table.Tbody>
          </Table>
        )}
        {found.length > rows && <Group justify="center" p={10}><Button variant="default" onClick={() => setRows(rows + ROWS)}>Show more</Button></Group>}
      </Panel>
      {!mayAdd && <p className={classes.note}>Admins of the project add members and change roles. Your role here is {me.role}.</p>}
      {shown?.kind === "new" && <AddMember me={me} onClose={close} />}
      {shown?.kind === "act" && shown.action.kind === "remove" && <RemoveMember me={me} member={shown.member} level={shown.action.level} onClose={close} />}
      {shown?.kind === "act" && shown.action.kind !== "remove" && <ChangeRole me={me} member={shown.member} level={shown.action.level} onClose={close} />}
    </>
  );
}

function Row({ me, members, member, onAct }: { me: Me; members: Member[]; member: Member; onAct: (action: MemberAction) => void }) {
  const actions = memberActions(me, members, member);
  return (
    <Table.Tr>
      <Table.Td className={classes.name}>{member.username}{member.id === me.user.id && <span className={classes.mark}>you</span>}</Table.Td>
      <Table.Td title={MEANINGS[member.role]}>{member.role}</Table.Td>
      <Table.Td className={classes.wide}>{member.project_role ?? "–"}</Table.Td>
      <Table.Td className={classes.wide}>{member.team_role ?? "–"}</Table.Td>
      <Table.Td ta="right">
        {actions.length > 0 && (
          <Menu position="bottom-end" width={250}>
            <Menu.Target><Button variant="subtle" color="gray" px={6} aria-label={`Actions on ${member.username}`}><IconDots size={15} /></Button></Menu.Target>
            <Menu.Dropdown>
              {actions.map((action) => (
                <Menu.Item key={action.label} color={action.kind === "remove" ? "red" : undefined} disabled={action.reason !== ""} onClick={() => onAct(action)}>
                  {action.label}{action.reason !== "" && <Text size="xs" c="dimmed">{action.reason}</Text>}
                </Menu.Item>
              ))}
            </Menu.Dropdown>
          </Menu>
        )}
      </Table.Td>
    </Table.Tr>
  );
}
