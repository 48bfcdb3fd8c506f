"""Child processes of the agent that import and check models, each in a directory of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_agents.agent.isolation.node import ROOT

OUTPUT_FILE = "output.log"


async def start(
    module: str, folder: Path, arguments: Sequence[str], *, home: Path, inherit: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    """Start `python -m module folder arguments` with a minimal environment plus the variables in `inherit`."""
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(home), "LANG": "C.UTF-8",
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        **{name: os.environ[name] for name in inherit if name in os.environ},
    }  # fmt: skip
    with (folder / OUTPUT_FILE).open("wb") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, str(folder), *arguments,
            env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip


def tail_output(folder: Path) -> str:
    """The last line of its output, for error messages."""
    text = (folder / OUTPUT_FILE).read_text(errors="replace")
    return text.strip().rpartition("\n")[2][:300] or "no output"
