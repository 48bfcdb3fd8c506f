import { CopyButton, Tooltip, UnstyledButton } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";

/** An id with a button that copies it in full. */
export function CopyId({ id, label }: { id: string; label?: string }) {
  return (
    <CopyButton value={id} timeout={1500}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? "Copied" : `Copy ${id}`}>
          <UnstyledButton onClick={copy} className="mono" style={{ display: "inline-flex", alignItems: "center", gap: 5, fontSize: "0.75rem", color: "inherit" }} aria-label={`Copy ${label ?? id}`}>
            {label ?? id} {copied ? <IconCheck size={12} /> : <IconCopy size={12} opacity={0.6} />}
          </UnstyledButton>
        </Tooltip>
      )}
    </CopyButton>
  );
}
