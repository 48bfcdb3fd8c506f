"""Tests only: the program of a workflow's sandbox as a plain child process, without any of the sandbox's walls.

It stands where a sandbox is, so that the protocol and what the worker makes of it can be tested where no sandbox can be
had. No code outside the tests imports it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_BOOTSTRAP = (
    "import json, sys; job = json.load(sys.stdin);"
    "exec(compile(job['program'], 'inside.py', 'exec'), {'__name__': '__main__', 'common': job['common']})"
)


def plain_process(program: str, common: dict[str, Any], socket: Path, stop: threading.Event) -> str:
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", _BOOTSTRAP],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stderr is not None
    child.stdin.write(json.dumps({"program": program, "common": common}))
    child.stdin.close()
    while child.poll() is None:
        if stop.wait(0.02):
            child.kill()
            child.wait()
            return ""
    return "" if child.returncode == 0 else f"it ended with {child.returncode}: {child.stderr.read()[-500:]}"
