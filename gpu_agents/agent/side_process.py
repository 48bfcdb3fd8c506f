"""A process beside the agent that works in a folder of its own: what it says lies there, and ends with it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_agents.agent.isolation.node import ROOT

SAID_FILE = "said.log"


async def start(
    module: str, folder: Path, arguments: Sequence[str], *, home: Path, passed_on: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    """`python -m module folder arguments`. Of the agent's environment it gets the path and what `passed_on` names."""
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(home), "LANG": "C.UTF-8",
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        **{name: os.environ[name] for name in passed_on if name in os.environ},
    }  # fmt: skip
    with (folder / SAID_FILE).open("wb") as said:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, str(folder), *arguments,
            env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip


def last_words(folder: Path) -> str:
    """The last line that it said, for whoever reads why it died."""
    text = (folder / SAID_FILE).read_text(errors="replace")
    return text.strip().rpartition("\n")[2][:300] or "it said nothing"
