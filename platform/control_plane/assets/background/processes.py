"""Processes of this machine that read what users uploaded: no credential in their environment, watched by ticks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

PLATFORM = Path(__file__).resolve().parents[3]


def start(module: str, folder: Path) -> int:
    """`python -m module FOLDER`; what it says goes to said.log there. Its pid."""
    with (folder / "said.log").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(PLATFORM), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    return process.pid


def is_alive(pid: int, folder: Path) -> bool:
    """Whether the process is there, is no zombie, and is the one of this folder: a pid is used again."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and str(folder) in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def kill(pid: int) -> None:
    """It and all that it started."""
    os.killpg(pid, signal.SIGKILL)


def last_words(folder: Path) -> str:
    """The last line that the process printed; empty when it was killed before it could print one."""
    try:
        said = (folder / "said.log").read_text(errors="replace").replace("\x00", "\ufffd")
    except FileNotFoundError:
        return ""
    return said.strip().rpartition("\n")[2][:500]
