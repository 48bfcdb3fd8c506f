export type Device = "cuda" | "cpu";

/** The commands that join a node. The token goes by a file, because every user of the node can read command lines. */
export function joinCommand(token: string, device: Device, server: string): string {
  return [
    `(umask 077; printf %s '${token}' > oolong-enroll)`,
    `.venv/bin/python -m gpu_agents.agent run --server ${server} --data-dir /var/lib/oolong-agent \\`,
    `  --join-token-file oolong-enroll --device ${device} --node-python "$(python3 manage.py node-python --device ${device})"`,
  ].join("\n");
}
