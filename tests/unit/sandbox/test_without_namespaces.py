"""On a machine whose kernel refuses user namespaces: what is said, and that tests are skipped for that reason alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from oolong.sandbox.kernel import WITHOUT_SANDBOX
from tests.support import without_namespaces

SEES = """
from pathlib import Path
from local_stack import paths, preflight
from oolong.sandbox import probe_sandbox
found = probe_sandbox(slots=1).capabilities
print(found.runs_code, found.message, found.command)
machine = preflight.inspect_machine(paths.checkout_paths(Path(".")), device="cpu", environments_ready=True)
print(*preflight.sandbox_note(machine))
"""
TESTS = ("tests/unit/sandbox/test_smoke.py", "tests/unit/bench/test_rewards_speed.py")


def run(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, without_namespaces.__file__, sys.executable, *words],
        cwd=checkout, capture_output=True, text=True,
        env={**os.environ, "CI": "1", "PYTHONPATH": f"{checkout / 'platform'}:{checkout}"},
    )  # fmt: skip


def test_what_is_left_is_said_with_the_command_that_brings_a_sandbox(checkout: Path) -> None:
    done = run(checkout, "-c", SEES)
    assert done.returncode == 0, done.stderr
    found, note = done.stdout.splitlines()
    assert found.startswith("False ") and "seccomp=unconfined" in found
    assert "user namespaces are refused" in note and WITHOUT_SANDBOX in note and "seccomp=unconfined" in note


def test_tests_of_the_sandbox_are_skipped_for_the_allowed_reason(checkout: Path) -> None:
    """A skip for any other reason fails a run under CI, and so does a test that fails where there is no sandbox."""
    done = run(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "skipped" in done.stdout and "this machine cannot isolate code of users" in done.stdout
