import "@mantine/core/styles/Radio.css";
import "@mantine/core/styles/RadioCard.css";
import "@mantine/core/styles/RadioIndicator.css";
import { Button, Checkbox, Group, Radio, Stack, Table } from "@mantine/core";

import { ALL_SCOPES, readScopes, scopeRows } from "./scopes.ts";
import classes from "./tokens.module.css";

type Props = { available: readonly string[]; value: string[]; onChange: (scopes: string[]) => void; allLabel: string; error?: string };

/** All that the role allows, or chosen scopes of those that the caller has. */
export function ScopePicker({ available, value, onChange, allLabel, error }: Props) {
  const isAll = value.includes(ALL_SCOPES);
  return (
    <Stack gap={8}>
      <Radio.Group label="Scopes" description="What requests with this token may do, as far as the role allows it at that moment." value={isAll ? "all" : "some"} onChange={(choice) => onChange(choice === "all" ? [ALL_SCOPES] : readScopes(available))} error={error}>
        <Stack gap={12} mt={8}>
          <Radio size="sm" value="some" label="Only the scopes below" />
          <Radio size="sm" value="all" label={allLabel} />
        </Stack>
      </Radio.Group>
      {!isAll && (
        <div>
          <Group gap={6} mb={6}>
            <Button variant="default" size="compact-xs" onClick={() => onChange(readScopes(available))}>Only read</Button>
            <Button variant="default" size="compact-xs" onClick={() => onChange([...available])}>All of these</Button>
            <Button variant="default" size="compact-xs" onClick={() => onChange([])}>None</Button>
          </Group>
          <div className={classes.scopes} role="group" aria-label="Scopes of the token" tabIndex={0}>
            <Table verticalSpacing={3} withRowBorders={false}>
              <Table.Tbody>
                {scopeRows(available).map(({ area, actions }) => (
                  <Table.Tr key={area}>
                    <Table.Td w={120}>{area}</Table.Td>
                    <Table.Td>
                      <Group gap={14}>
                        {actions.map((action) => {
                          const scope = `${area}:${action}`;
                          return <Checkbox key={scope} size="xs" label={action} aria-label={scope} checked={value.includes(scope)} onChange={(event) => onChange(event.currentTarget.checked ? [...value, scope] : value.filter((one) => one !== scope))} />;
                        })}
                      </Group>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        </div>
      )}
    </Stack>
  );
}
