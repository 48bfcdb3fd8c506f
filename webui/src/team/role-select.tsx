import { Select } from "@mantine/core";

import type { Role } from "../api/schema.d.ts";
import { MEANINGS } from "./roles.ts";

type Props = { roles: Role[]; value: Role | null; onChange: (role: Role | null) => void; error?: string };

/** A role, with what it means below. */
export function RoleSelect({ roles, value, onChange, error }: Props) {
  return (
    <Select
      label="Role" placeholder="Choose a role" allowDeselect={false} data={roles} value={value} onChange={(role) => onChange(role as Role | null)} error={error}
      description={value === null ? "What they may do" : `A person with the role ${value} ${MEANINGS[value]}.`} inputWrapperOrder={["label", "input", "error", "description"]}
    />
  );
}
