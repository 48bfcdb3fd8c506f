"""The real agent with the jobs of tests/support/small_job.py: `python -m tests.support.small_job_agent run --server …`
takes what `python -m gpu_agents.agent run` takes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gpu_agents.agent import __main__ as entry
from gpu_agents.agent import agent
from tests.support.small_jobs import COMMANDS

PROGRAM = """#!{python}
import os, sys
words = ["tests.support.small_job_agent" if word == "gpu_agents.agent" else word for word in sys.argv[1:]]
os.execv({python!r}, [{python!r}, *words])
"""


class SmallJobAgent(agent.Agent):
    def __init__(
        self, settings: agent.AgentSettings, node: agent.Node, *, leave: asyncio.Event | None = None
    ) -> None:
        super().__init__(settings, node, commands=COMMANDS, leave=leave)


def write_python(file: Path) -> Path:
    """A Python that starts this agent in place of the product's."""
    file.write_text(PROGRAM.format(python=sys.executable))
    file.chmod(0o755)
    return file


if __name__ == "__main__":
    entry.Agent = SmallJobAgent  # type: ignore[attr-defined, misc]
    sys.exit(entry.main())
