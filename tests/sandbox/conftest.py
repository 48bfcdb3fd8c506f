"""The sandbox as root's service has it and as a normal user's has it; baits that no program may reach."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpu_agents.agent.isolation.node import CODE, ROOT, TEMPORARY_MODE
from gpu_agents.agent.isolation.view import View, command, links_of
from oolong.sandbox import Capabilities, Limits, ProbeResult, Program, Sandbox, Status, probe_sandbox
from oolong.sandbox.runtime_files import find_bubblewrap
from oolong.system.process_handle import descendants
from tests.support.isolation import require_isolation, sandbox_or_skip

PACKAGE = Path(sys.modules["oolong.sandbox"].__file__ or "").parent
SLOTS = 2
LIMITS = Limits(
    cpu_seconds=1, wall_seconds=2, memory_bytes=160 * 1024**2, processes=16, total_wall_seconds=30
)
# For what must end by itself or by another bound than time, however busy the machine is.
PATIENT = replace(LIMITS, cpu_seconds=60, wall_seconds=60, total_wall_seconds=120)
NORMAL_UID = 40_000 + random.randrange(10_000)
SLOT_UID = 50_000 + random.randrange(9_000)


class AsThisUser:
    """In this process: as root each sandbox gets a uid of its own."""

    service: int | None = None

    def __init__(self) -> None:
        self.probe_result: ProbeResult = probe_sandbox(slots=SLOTS, first_uid=SLOT_UID)
        self.capabilities = self.probe_result.capabilities
        own = range(SLOT_UID, SLOT_UID + SLOTS)
        self.uids = set(own) if self.capabilities.own_uid else {os.geteuid()}

    def run(self, program: dict[str, Any]) -> dict[str, Any]:
        return run_described(self.probe_result.require(), program)

    def close(self) -> None:
        pass


class AsNormalUser:
    """In a child process without any privilege, started from a Python that every user can reach."""

    service: int | None = None  # where it has a pid namespace of its own

    def __init__(self, folder: Path) -> None:
        runtime_files = sandbox_or_skip(probe_sandbox(slots=1, first_uid=SLOT_UID)).runtime_files
        shutil.copytree(PACKAGE, folder / "oolong" / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "oolong" / "__init__.py").touch()
        shutil.copy(__file__, folder / "normal_user.py")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        self._child = subprocess.Popen(
            [str(runtime_files.python), "-c", NORMAL_USER_PROGRAM],
            env={
                "PATH": f"{runtime_files.bubblewrap.parent}:/usr/bin:/bin",
                "PYTHONPATH": str(folder),
                "LD_LIBRARY_PATH": ":".join({str(file.parent) for file in runtime_files.shared_objects}),
                "PLANTED_SECRET": "in the environment of the service",
            },
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=NORMAL_UID,
            group=NORMAL_UID,
            extra_groups=[],
        )
        self.capabilities = Capabilities(**self._read())
        self.uids = {NORMAL_UID}

    @property
    def pid(self) -> int:
        return self._child.pid

    def run(self, program: dict[str, Any]) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(program).encode() + b"\n")
        self._child.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, "the process of the normal user died"
        return json.loads(line)

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(timeout=10)


class InAJob(AsNormalUser):
    """In a job of an agent of root: under the uid of its attempt, in the view that a job has of the machine."""

    def __init__(self, folder: Path) -> None:
        work, temporary = folder / "work", folder / "tmp"
        for path in (work, temporary):
            path.mkdir(parents=True)
            os.chown(path, NORMAL_UID, NORMAL_UID)
        temporary.chmod(TEMPORARY_MODE)
        view = View(
            bubblewrap=find_bubblewrap(), python=Path(sys.executable), uid=NORMAL_UID, directory=work,
            read_only=(*CODE, ROOT / "tests", Path(sys.prefix), Path(sys.base_prefix)), writable=(work,),
            temporary=temporary, links=tuple(links_of(Path(sys.executable)).items()),
        )  # fmt: skip
        self._child = subprocess.Popen(
            command(view, [sys.executable, "-c", NORMAL_USER_PROGRAM]),
            env={
                "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "USER": "oolong-job",
                "PLANTED_SECRET": "in the environment of the service",
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.capabilities = Capabilities(**self._read())
        self.uids = {NORMAL_UID}
        self.service = descendants(self._child.pid)[-1]


NORMAL_USER_PROGRAM = """
import json, sys
from dataclasses import asdict
from oolong.sandbox import Limits, Program, Status, probe_sandbox
from oolong.sandbox import Test
probe_result = probe_sandbox(slots=2)
print(json.dumps(asdict(probe_result.capabilities)), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    tests = tuple(Test(payload=payload) for payload in asked["payloads"])
    outcome = probe_result.require().run(Program(source=asked["source"], tests=tests), Limits(**asked["limits"]))
    print(json.dumps({
        "error": outcome.error, "sandboxes": outcome.sandboxes, "seconds": outcome.seconds,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "tests": [{
            "status": test.status, "exit_code": test.exit_code, "stdout": test.stdout.decode(errors="replace"),
            "stderr": test.stderr.decode(errors="replace"),
            "value": test.value.decode(errors="replace") if test.value is not None else None,
        } for test in outcome.tests],
    }), flush=True)
"""


def run_described(sandbox: Sandbox, asked: dict[str, Any]) -> dict[str, Any]:
    from oolong.sandbox import Test

    tests = tuple(Test(payload=payload) for payload in asked["payloads"])
    outcome = sandbox.run(Program(source=asked["source"], tests=tests), Limits(**asked["limits"]))
    return {
        "error": outcome.error,
        "sandboxes": outcome.sandboxes,
        "seconds": outcome.seconds,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "tests": [
            {
                "status": str(test.status),
                "exit_code": test.exit_code,
                "stdout": test.stdout.decode(errors="replace"),
                "stderr": test.stderr.decode(errors="replace"),
                "value": test.value.decode(errors="replace") if test.value is not None else None,
            }
            for test in outcome.tests
        ],
    }


def described(source: str, *, payloads: tuple[Any, ...] = (None,), limits: Limits = LIMITS) -> dict[str, Any]:
    return {"source": source, "payloads": list(payloads), "limits": asdict(limits)}


# As a user there is no service of root, which would switch to a uid of its own for each sandbox; and a job of a user's
# agent is that user's.
@pytest.fixture(
    scope="session",
    params=["service_of_root", "normal_user", "in_a_job"] if os.geteuid() == 0 else ["normal_user"],
)
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AsThisUser | AsNormalUser]:
    made: AsThisUser | AsNormalUser
    if request.param == "in_a_job":
        folder = Path("/var/tmp") / f"oolong-in-a-job-{os.getpid()}"
        made = InAJob(folder)
        yield made
        made.close()
        shutil.rmtree(folder)
        return
    if request.param == "normal_user" and os.geteuid() == 0:
        folder = Path("/var/tmp") / f"oolong-attacks-{os.getpid()}"
        folder.mkdir(mode=0o755)
        try:
            made = AsNormalUser(folder)
            yield made
            made.close()
        finally:
            shutil.rmtree(folder)
        return
    made = AsThisUser()
    require_isolation(made.capabilities)
    yield made
    made.close()


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    probe_result = probe_sandbox(slots=SLOTS, first_uid=SLOT_UID)
    return sandbox_or_skip(probe_result)


@dataclass
class Baits:
    """What the machine has and a program must not reach. `hits` counts who did."""

    port: int
    abstract: str
    socket: str
    secret: str
    hits: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def baits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Baits]:
    folder = Path("/var/tmp") / f"oolong-baits-{os.getpid()}"
    folder.mkdir(mode=0o755)
    secret = folder / "secret"
    secret.write_text("the planted secret")
    secret.chmod(0o644)
    tcp = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0oolong-bait-{os.getpid()}")
    abstract.listen()
    named = socket.socket(socket.AF_UNIX)
    named.bind(str(folder / "named.sock"))
    (folder / "named.sock").chmod(0o666)
    named.listen()
    baits = Baits(
        port=tcp.getsockname()[1],
        abstract=f"oolong-bait-{os.getpid()}",
        socket=str(folder / "named.sock"),
        secret=str(secret),
    )

    def listen(server: socket.socket, name: str) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.close()
            baits.hits.append(name)

    servers = {"tcp": tcp, "abstract": abstract, "named": named}
    for name, server in servers.items():
        threading.Thread(target=listen, args=(server, name), daemon=True).start()
    os.environ["PLANTED_SECRET"] = "in the environment of the service"
    yield baits
    del os.environ["PLANTED_SECRET"]
    for server in servers.values():
        server.shutdown(socket.SHUT_RDWR)
        server.close()
    shutil.rmtree(folder)


def processes_of(uids: set[int], *, service: int | None = None) -> list[str]:
    """Command names of the processes that run under one of these uids, and in another pid namespace than these tests
    and the service that they ask."""
    own = {os.readlink(f"/proc/{pid}/ns/pid") for pid in ("self", service or "self")}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid in uids and os.readlink(entry / "ns" / "pid") not in own:
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found


__all__ = ["LIMITS", "PATIENT", "Baits", "Program", "Status", "described", "processes_of"]


def run_reader(module: str, folder: Path, checkout: Path) -> None:
    """The process that a tick starts to read what a user uploaded, until its end; it is to end well."""
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout / "platform")},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
