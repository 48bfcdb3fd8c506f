"""The batch script of an agent. It holds no secret: everybody with rights on the job can read it."""

from __future__ import annotations

import shlex
from pathlib import Path

from oolong.cli.slurm.types import JobOptions

TOKEN_SECONDS = 900  # that a job waits for its join token


def batch_script(options: JobOptions, *, jobs: Path) -> str:
    """`jobs` is the provider's folder with one folder per job, where the join token appears once the job runs."""
    root = shlex.quote(options.data_root) if options.data_root else "${TMPDIR:-/tmp}"
    agent = [
        str(options.python), "-m", "gpu_agents.agent", "run", "--provider", "slurm",
        "--server", options.server, "--device", options.device,
        *(["--slots", str(options.slots)] if options.device == "cpu" else []),
        *(["--slots-per-gpu", str(options.slots_per_gpu)] if options.device == "cuda" else []),
        "--node-python", options.node_python, "--idle-minutes", f"{options.idle_minutes:g}", *options.agent_arguments,
    ]  # fmt: skip
    return f"""#!/bin/bash
# A GPU agent of Oolong, submitted by `oolong pool provider slurm`.
umask 077
data={root}/oolong-$SLURM_JOB_ID
token={shlex.quote(str(jobs))}/$SLURM_JOB_ID/token
for ((second = 0; second < {TOKEN_SECONDS}; second++)); do
  [ -s "$token" ] && break
  sleep 1
done
if [ ! -s "$token" ]; then
  echo "error: no join token in $token: does the provider run, and does this machine see its folder?" >&2
  exit 1
fi
mkdir -p "$data"
{shlex.quote(str(options.python))} -m gpu_agents.agent.node_init --drain --data-dir "$data" -- \\
  {shlex.join(agent)} \\
  --data-dir "$data" --join-token-file "$token" --name "${{SLURMD_NODENAME:-slurm}}-$SLURM_JOB_ID" &
agent=$!
# Slurm ends the job together with this shell, so the shell stays until the agent has drained the node.
trap 'kill -TERM "$agent" 2> /dev/null' TERM
while kill -0 "$agent" 2> /dev/null; do
  wait "$agent"
  status=$?
done
rm -rf "$data"
exit "$status"
"""
