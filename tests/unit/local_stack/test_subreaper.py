"""Processes that a suite leaves running are terminated, also in their own session and ignoring SIGTERM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DRIVER = """
import subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from local_stack import selftest
from local_stack import subreaper

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
LEAVE = '''
import subprocess, sys
deaf = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
deaf.stdout.readline()
polite = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
print(deaf.pid, polite.pid)
'''

def leave_two_daemons(*_, **__):
    done = subprocess.run([sys.executable, "-S", "-c", LEAVE, DEAF], stdout=subprocess.PIPE, text=True, check=True)
    Path("started").write_text(done.stdout)
    return selftest.SuiteResult(failed=1, problems=["unit: not finished"])

selftest.run_pytest = leave_two_daemons
subreaper.terminate_descendants.__kwdefaults__["grace"] = 0.3
sys.exit(selftest.run_suites(SimpleNamespace(var=Path.cwd()), names=["unit"], device="cpu", pytest_args=[]))
"""


def test_processes_left_by_a_suite_are_reported_and_terminated(tmp_path: Path, checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=tmp_path, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout / "platform")},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    for pid in (tmp_path / "started").read_text().split():
        assert f"still running after unit, terminated: {pid} " in done.stdout
        assert not Path(f"/proc/{pid}").exists()
