"""`manage.py` in a clone of its own: SIGKILL to the supervisor, SIGTERM to a demo, and a demo without a network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from local_stack import environments, jobs, stack
from local_stack.files import read_json
from local_stack.paths import Paths, checkout_paths
from tests.support.stack import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

STOP_WITHIN_SECONDS = 20.0


@dataclass
class Clone:
    paths: Paths

    def manage(self, *words: str, timeout: float = 120) -> str:
        done = subprocess.run(
            self._command(*words), cwd=self.paths.root, env=_environment(), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, (
            f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
        return done.stdout

    def start_demo(self) -> subprocess.Popen[bytes]:
        with (self.paths.root / "demo.log").open("ab") as log:
            return subprocess.Popen(
                self._command("demo", "--exit"), cwd=self.paths.root, env=_environment(), stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def wait_for_a_job(self) -> jobs.SupervisedJob:
        found = until(
            lambda: jobs.live_jobs(self.paths.agent_data), seconds=120, what="a job of the demo runs",
            said=lambda: (self.paths.root / "demo.log").read_text(errors="replace")[-3000:],
        )  # fmt: skip
        job: jobs.SupervisedJob = found[0]
        return job

    def processes(self) -> list[int]:
        """Everything that works in this clone or on its data."""
        needles = (str(self.paths.root).encode(), str(self.paths.data).encode())
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if state not in "ZX" and any(needle in text for needle in needles):
                found.append(int(entry.name))
        return found

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, str(self.paths.root / "manage.py"), *words]


def _environment() -> dict[str, str]:
    """What a newcomer's shell has, and nothing of the test session's services."""
    return {name: os.environ[name] for name in ("HOME", "PATH", "LANG", "OOLONG_HOME") if name in os.environ}


@pytest.fixture
def clone(checkout: Path, node_python: Path, tmp_path: Path) -> Iterator[Clone]:
    """This checkout as it is in the working tree, with its environments; the dashboard is left out."""
    root = tmp_path / "clone"
    shutil.copytree(
        checkout, root,
        ignore=lambda folder, names: {"node_modules", ".git", "tests", "__pycache__"}.intersection(names)
        | ({"var", ".venv", "webui"} if Path(folder) == checkout else set()),
    )  # fmt: skip
    (root / ".venv").symlink_to(checkout / ".venv")
    paths = checkout_paths(root)
    assert environments.platform_environment(paths).is_ready()
    assert environments.node_environment(paths).python == node_python
    clone = Clone(paths)
    yield clone
    stack.down(paths, echo=lambda text: None)
    for pid in clone.processes():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(paths.data, ignore_errors=True)


def test_a_killed_supervisor_is_followed_by_one_that_adopts_and_a_demo_stops_when_asked(clone: Clone) -> None:
    paths = clone.paths
    clone.manage("up")
    demo = clone.start_demo()
    job = clone.wait_for_a_job()
    services = {name: identity.pid for name, identity in stack.live_services(paths).items()}
    assert set(services) == set(stack.SERVICE_NAMES)
    os.killpg(demo.pid, signal.SIGKILL)  # the demo found a stack that ran, so it is not its to stop
    demo.wait(timeout=60)
    supervisor = read_json(paths.run / "status.json")["supervisor_pid"]
    os.kill(supervisor, signal.SIGKILL)
    clone.manage("up")
    assert read_json(paths.run / "status.json")["supervisor_pid"] != supervisor
    assert {name: identity.pid for name, identity in stack.live_services(paths).items()} == services
    assert job in jobs.live_jobs(paths.agent_data)
    began = time.monotonic()
    clone.manage("down")
    assert time.monotonic() - began < STOP_WITHIN_SECONDS
    until(lambda: not clone.processes(), seconds=60, what="nothing of the clone runs")

    demo = clone.start_demo()
    until(
        lambda: stack.is_running(paths), seconds=60, what="the stack is up again",
        said=lambda: (paths.root / "demo.log").read_text(errors="replace")[-3000:],
    )  # fmt: skip
    clone.wait_for_a_job()
    began = time.monotonic()
    demo.terminate()
    assert demo.wait(timeout=STOP_WITHIN_SECONDS + 10) == 130
    assert time.monotonic() - began < STOP_WITHIN_SECONDS
    until(lambda: not clone.processes(), seconds=60, what="nothing of the clone runs")


# Brings the loopback of a new network namespace up, without a program that a bare machine lacks.
LOOPBACK_UP = (
    "import fcntl, os, socket, struct, sys; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 0x41)); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_after_set_up_a_demo_needs_no_network(clone: Clone) -> None:
    """In a network namespace that has only loopback, and no route: the whole demo, of twenty train steps."""
    unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    done = subprocess.run(
        [
            *unshare, sys.executable, "-c", LOOPBACK_UP,
            *clone._command("demo", "--exit", "--steps", "20"),
        ],
        cwd=clone.paths.root, env=_environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=1200,
    )  # fmt: skip
    summary = read_json(clone.paths.var / "demo-summary.json")
    assert summary["status"] == "SUCCEEDED", done.stdout[-3000:] + done.stderr[-3000:]
    assert summary["train_steps"] == 20
    assert summary["trajectories_spanning_versions"] > 0
