"""Servers of a session of tests: started as children that do not outlive it."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_stack.postgres import RunAs
from tests.support.waiting import wait_until

PR_SET_PDEATHSIG = 1


def start_server(argv: list[str], *, cwd: Path, run_as: RunAs | None) -> subprocess.Popen[bytes]:
    """Its output goes to `<cwd>.log`, beside its folder."""
    dropped: dict[str, Any] = run_as.popen_arguments() if run_as else {}
    words = argv
    if run_as is None:
        dropped["preexec_fn"] = _end_with_parent
    else:
        # The order to die with the parent is lost when rights are dropped, so it is given after that.
        setpriv = shutil.which("setpriv")
        words = [setpriv, "--pdeathsig", "INT", *argv] if setpriv else argv
    with _log(cwd).open("wb") as log:
        return subprocess.Popen(words, cwd=cwd, stdout=log, stderr=subprocess.STDOUT, **dropped)


def until_it_serves(
    ready: Callable[[], bool], *, process: subprocess.Popen[bytes], what: str, cwd: Path
) -> None:
    """Return once the server that `start_server` started answers; its last words if it does not."""

    def said() -> str:
        return f"{what}: {_log(cwd).read_text()[-2000:]}"

    wait_until(lambda: ready() or process.poll() is not None, said)
    if process.poll() is not None:
        raise RuntimeError(f"{what} for the tests did not start:\n{said()}")


def _log(cwd: Path) -> Path:
    return cwd.with_name(f"{cwd.name}.log")


def _end_with_parent() -> None:
    """Have the kernel stop this child when pytest dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
