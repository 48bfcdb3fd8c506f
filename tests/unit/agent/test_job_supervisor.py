"""The per-job supervisor, started as the agent starts it: a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_agents.agent import processes
from gpu_agents.agent.job_supervisor import ALREADY_SUPERVISED
from gpu_agents.agent.launch import SUPERVISOR_PATH
from oolong.system.process_handle import ProcessHandle, find_process
from tests.support.waiting import wait_until


class Supervised:
    def __init__(
        self,
        directory: Path,
        script: str,
        orphan_ttl: float,
        job_id: str,
        secrets: dict[str, str],
        *,
        deaf: bool,
    ) -> None:
        self.secrets = secrets
        self.deaf = deaf
        self.directory = directory
        self.record_file = directory / "record.json"
        self.contact = directory / "contact"
        self.contact.touch()
        self.order = directory / "order.json"
        self.order.write_text(
            json.dumps(
                {
                    "job_id": job_id,
                    "incarnation": 0,
                    "directory": str(directory),
                    "supervision": str(directory),
                    "temporary": "",
                    "isolated": False,
                    "command": [sys.executable, "-S", "-c", script],
                    "environment": {processes.MARK: job_id, "PATH": os.environ["PATH"]},
                    "has_secrets": bool(secrets),
                    "record": str(self.record_file),
                    "contact": str(self.contact),
                    "orphan_ttl_seconds": orphan_ttl,
                    "grace_seconds": 0.3,
                }
            )
        )
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-m", "gpu_agents.agent.job_supervisor", str(self.order)],
            env={"PYTHONPATH": SUPERVISOR_PATH},
            stdin=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_ignore_sigterm if self.deaf else None,
        )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(json.dumps(self.secrets).encode())
        return process

    @property
    def record(self) -> dict[str, int]:
        return json.loads(self.record_file.read_text())

    @property
    def exit(self) -> dict[str, object]:
        return json.loads((self.directory / "exit.json").read_text())

    @property
    def output(self) -> str:
        path = self.directory / "output.log"
        return path.read_text() if path.exists() else ""


def _ignore_sigterm() -> None:
    """Its job inherits that; the supervisor takes its signals from a queue, which ignored ones reach as well."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    started: list[Supervised] = []

    def begin(
        script: str,
        *,
        orphan_ttl: float = 60.0,
        secrets: dict[str, str] | None = None,
        deaf: bool = False,
    ) -> Supervised:
        """`deaf`: the job ignores SIGTERM from its first moment on."""
        directory = tmp_path / f"job-{len(started)}"
        directory.mkdir()
        started.append(
            Supervised(
                directory,
                script,
                orphan_ttl,
                f"job_{os.getpid()}_{tmp_path.name}_{len(started)}",
                secrets or {},
                deaf=deaf,
            )
        )
        return started[-1]

    yield begin
    for supervised in started:
        if supervised.process.poll() is None:
            supervised.process.send_signal(signal.SIGUSR2)
            supervised.process.wait(60)


@pytest.mark.parametrize("secrets", [{}, {"HF_TOKEN": "hf_0123456789"}])
def test_no_process_of_a_job_leaves_a_core_dump(supervise: Supervise, secrets: dict[str, str]) -> None:
    job = supervise("import resource as r; print(r.getrlimit(r.RLIMIT_CORE))", secrets=secrets)
    assert job.process.wait(60) == 0
    assert job.output.split() == ["(0,", "0)"]


def test_output_and_exit_status_are_written_down(supervise: Supervise) -> None:
    job = supervise(
        "import sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr); sys.exit(7)"
    )
    assert job.process.wait(60) == 0
    assert job.output.splitlines() == ["to stdout", "to stderr"]
    assert job.exit["code"] == 7 and job.exit["cause"] == ""


def test_a_job_with_secrets_has_them_and_its_log_and_its_directory_do_not(supervise: Supervise) -> None:
    key = 'two words, "quoted"\n-and-a-second-line-'
    job = supervise(
        "import os, sys\n"
        "key, environ = os.environ['KEY'], os.environ\n"
        "open('seen', 'w').write(f'{len(key)} {environ[\"PATH\"] != \"/stolen\"} {environ[\"OOLONG_SECRETS\"]}')\n"
        "for character in key: print(end=character, flush=True)\n"
        "print(f'|{key!r}|{key.splitlines()[1]}|', file=sys.stderr)\n"
        "print('the end', end='')",
        secrets={"KEY": key, "PATH": "/stolen"},
    )
    assert job.process.wait(60) == 0
    assert (job.directory / "seen").read_text() == f"{len(key)} True KEY"
    lines = job.output.split("|")
    assert lines[0] == "[secret KEY]" and lines[2:] == ["[secret KEY]", "\nthe end"]
    everything = b"".join(file.read_bytes() for file in job.directory.rglob("*") if file.is_file())
    assert b"second-line" not in everything
    assert job.exit["code"] == 0


def test_without_secrets_a_job_writes_its_log_by_itself(supervise: Supervise) -> None:
    job = supervise("import os; print(os.readlink('/proc/self/fd/1'), 'OOLONG_SECRETS' in os.environ)")
    job.process.wait(60)
    assert job.output.split() == [str(job.directory / "output.log"), "False"]


def test_the_last_words_of_a_killed_job_with_secrets_are_in_its_log_when_its_end_is_known(
    supervise: Supervise,
) -> None:
    job = supervise(
        "import os, signal; os.write(1, b'x' * 60000 + b'hunter2-hunt'); os.kill(os.getpid(), signal.SIGKILL)",
        secrets={"KEY": "hunter2-hunter2"},
    )
    job.process.wait(60)
    assert job.exit["code"] == -signal.SIGKILL
    assert job.output == "x" * 60000 + "hunter2-hunt", "what only began like a secret is not one"


def test_a_death_by_signal_is_a_negative_code(supervise: Supervise) -> None:
    job = supervise("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    job.process.wait(60)
    assert job.exit["code"] == -signal.SIGSEGV


def test_a_command_that_does_not_exist_is_said_in_the_log(tmp_path: Path, supervise: Supervise) -> None:
    job = supervise("")
    job.process.wait(60)
    order = json.loads(job.order.read_text())
    order["command"] = ["/nowhere/python"]
    (job.directory / "exit.json").unlink()
    job.order.write_text(json.dumps(order))
    job.start().wait(60)
    assert job.exit["code"] == 127
    assert "cannot start /nowhere/python" in job.output


def test_a_daemonised_grandchild_does_not_survive(supervise: Supervise) -> None:
    """The daemon forks twice, takes a session of its own, ignores SIGTERM, and drops its environment's mark."""
    job = supervise(
        "import os, signal, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        open('daemon', 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "while not os.path.exists('daemon') or not open('daemon').read(): time.sleep(0.01)\n"
    )
    job.process.wait(60)
    daemon = int((job.directory / "daemon").read_text())
    assert find_process(daemon) is None
    assert job.exit["code"] == 0


def test_sigterm_reaches_the_first_process_only_and_it_may_finish_its_work(supervise: Supervise) -> None:
    """A rollout worker says farewell while its engine, a child in the same group, still serves.

    The handlers write by `os.write`: one that interrupts a `print` cannot print.
    """
    job = supervise(
        "import os, signal, sys, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'engine got it\\n'))\n"
        "    time.sleep(600)\n"
        "def stop(*_):\n"
        "    os.kill(child, 0)\n"
        "    os.write(1, b'engine was there at the farewell\\n')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "os.write(1, b'ready\\n')\n"
        "while True: time.sleep(0.05)\n"
    )
    wait_until(lambda: "ready" in job.output, lambda: job.output)
    job.process.terminate()
    job.process.wait(60)
    assert job.output.splitlines() == ["ready", "engine was there at the farewell"]
    assert job.exit == {"code": 0, "cause": "stopped", "at": job.exit["at"]}


def test_the_kill_signal_ends_a_job_that_ignores_sigterm(supervise: Supervise) -> None:
    job = supervise(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    wait_until(lambda: "ready" in job.output, lambda: job.output)
    job.process.terminate()
    job.process.send_signal(signal.SIGUSR2)
    job.process.wait(60)
    assert job.exit["code"] == -signal.SIGKILL


def test_without_contact_for_the_orphan_ttl_the_job_is_ended_with_no_agent_about(
    supervise: Supervise,
) -> None:
    job = supervise("import time; time.sleep(600)", orphan_ttl=0.5, deaf=True)
    job.process.wait(60)
    assert job.exit["cause"] == "orphaned" and job.exit["code"] == -signal.SIGKILL


def test_contact_keeps_a_job_alive(supervise: Supervise) -> None:
    """A late touch would be a silence of its own, so the longest silence that there was is measured with it."""
    longest, last, touched = 0.0, time.monotonic(), 0.0
    job = supervise("import time; time.sleep(600)", orphan_ttl=1.0)
    while touched < 1.5:
        os.utime(job.contact)
        alive = job.process.poll() is None
        now = time.monotonic()
        longest = max(longest, now - last)
        touched += now - last if job.record_file.exists() else 0.0
        last = now
        time.sleep(0.02)
    assert alive or longest > 0.5
    job.process.wait(60)
    assert job.exit["cause"] == "orphaned"


def test_one_job_directory_is_never_run_twice(supervise: Supervise) -> None:
    job = supervise("import time; open('runs', 'a').write('x'); time.sleep(600)")
    runs = job.directory / "runs"
    wait_until(lambda: runs.exists() and runs.read_text(), lambda: job.output)
    assert job.start().wait(60) == ALREADY_SUPERVISED
    job.process.send_signal(signal.SIGUSR2)
    job.process.wait(60)
    assert job.start().wait(60) == 0
    assert runs.read_text() == "x"


def test_the_record_names_processes_beyond_pid_reuse(supervise: Supervise) -> None:
    job = supervise("import time; time.sleep(600)")
    wait_until(job.record_file.exists, lambda: job.output)
    record = job.record
    assert record["pid"] == job.process.pid
    handle = ProcessHandle(record["pid"], record["start_ticks"], record["boot_id"])
    assert handle.is_alive()
    assert not replace(handle, start_ticks=handle.start_ticks - 1).is_alive()
    wait_until(lambda: os.getpgid(record["job_pid"]) == record["pgid"], lambda: job.output)
    assert os.getsid(record["job_pid"]) != os.getsid(record["pid"])


def test_a_supervisor_is_small(supervise: Supervise) -> None:
    job = supervise("import time; time.sleep(600)")
    wait_until(job.record_file.exists, lambda: job.output)
    resident = next(
        int(line.split()[1])
        for line in Path(f"/proc/{job.process.pid}/status").read_text().splitlines()
        if "VmRSS" in line
    )
    assert resident < 24 * 1024, f"{resident} KiB resident"


def test_what_a_killed_supervisor_leaves_is_found_by_its_mark(supervise: Supervise) -> None:
    job = supervise("import os, time; os.fork(); os.fork(); print(os.getpid(), flush=True); time.sleep(600)")
    wait_until(lambda: len(job.output.splitlines()) == 4, lambda: job.output)
    job_id = json.loads(job.order.read_text())["job_id"]
    job.process.kill()
    job.process.wait(60)
    assert processes.end_marked(job_id) == 4
    assert processes.marked(job_id) == []


def test_what_a_supervisor_left_that_was_killed_before_it_wrote_anything_down_ends_before_the_next_start(
    supervise: Supervise,
) -> None:
    job = supervise("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    wait_until(lambda: job.record_file.exists() and job.output, lambda: job.output)
    job.process.kill()
    job.process.wait(60)
    job.record_file.unlink()
    job.process = job.start()
    wait_until(lambda: len(job.output.splitlines()) == 2, lambda: job.output)
    first, second = map(int, job.output.splitlines())
    assert processes.marked(json.loads(job.order.read_text())["job_id"]) == [second] and second != first
