"""Start jobs: files, command, environment and supervisor."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO

import msgspec

from gpu_agents.agent import processes
from gpu_agents.agent.isolation.node import ROOT, TEMPORARY_MODE, NodeIsolation
from gpu_agents.agent.job_supervisor import ALREADY_SUPERVISED
from gpu_agents.agent.network_interface import interface_of
from gpu_agents.agent.records import JobRecord, SupervisorRecord, read_json, write_json
from gpu_agents.agent.settings import DataDirectory
from oolong import cuda_host
from oolong.contracts.agent import DesiredAttempt, JobIsolation
from oolong.contracts.attempt import (
    ATTEMPT_FILE,
    EXIT_FILE,
    JOB_FILE,
    AttemptFile,
    JobFile,
    PeerListenerFile,
    TrainerGangFile,
)
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.runtime_overrides import LIVE_FILE, RuntimeOverrides
from oolong.gpu_slots import visible_devices

SUPERVISOR_PATH = f"{ROOT / 'platform'}:{ROOT}"
JOB_USER = "oolong-job"
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
TEMPORARY = "tmp"  # the job's /tmp; the supervisor removes it
LOOPBACK = "127.0.0.1"
PEER_PORTS = ("controller", "reward", "weights")  # what other nodes reach on the trainer's node
RENDEZVOUS = "rendezvous"  # where the ranks of several nodes meet
PEERS_ONLY = ("weights", RENDEZVOUS)  # not on loopback
SUPERVISOR_START_SECONDS = 60.0  # long, because a machine may stall


class LaunchError(Exception):
    """A job could not be started. The message appears in the run's events."""


@dataclass(frozen=True)
class InputPaths:
    """Paths of an attempt's inputs on this node."""

    dataset_file: Path
    model_directory: Path
    evaluation_file: Path | None = None
    resume_directory: Path | None = None
    source_files: Mapping[str, Path] = field(default_factory=dict)  # by kind, in the node's cache


@dataclass(frozen=True)
class JobContext:
    """The facts that a job's command is built from."""

    attempt: AttemptFile
    attempt_file: Path
    job_directory: Path
    slots: list[str]


Command = Callable[[JobContext], list[str]]


def controller_command(context: JobContext) -> list[str]:
    tests_a_reward = context.attempt.run_spec.kind == "reward_test"
    module = "gpu_agents.reward_test" if tests_a_reward else "gpu_agents.rollout.controller"
    return [sys.executable, "-m", module, *_files(context)]


def reward_command(context: JobContext) -> list[str]:
    return [sys.executable, "-m", "gpu_agents.rewards", *_files(context)]


def rollout_command(context: JobContext) -> list[str]:
    chats = context.attempt.run_spec.kind == "playground"
    module = "gpu_agents.playground" if chats else "gpu_agents.rollout.worker"
    return [sys.executable, "-m", module, *_files(context)]


def trainer_command(context: JobContext) -> list[str]:
    """Ranks on one node need no rendezvous port. Of several nodes, each starts the ranks of its own slots."""
    spec, gang = context.attempt.run_spec, context.attempt.gang
    num_ranks, options = spec.trainer.num_ranks, []
    if gang is not None:
        num_ranks = len(context.slots)
        options = [
            "--nodes", str(gang.nodes), "--node-rank", str(gang.node_rank), "--address", gang.address,
            "--port", str(gang.port),
        ]  # fmt: skip
    return [
        context.attempt.node_python, "-m", "trainers.distributed.launch", *options,
        str(num_ranks), f"trainers.{spec.kind}", *_files(context),
    ]  # fmt: skip


COMMANDS: Mapping[JobKind, Command] = {
    JobKind.CONTROLLER: controller_command,
    JobKind.REWARD: reward_command,
    JobKind.ROLLOUT: rollout_command,
    JobKind.TRAINER: trainer_command,
}


def write_attempt(
    data: DataDirectory,
    attempt: DesiredAttempt,
    inputs: InputPaths,
    *,
    node_python: str,
    device: str,
    slots_per_gpu: int = 1,
    uid: int | None = None,
) -> Path:
    """Create the attempt's directory and its `attempt.json`, which contains the attempt's token.

    With a uid, the attempt's jobs can read these files but own only their working directories.
    """
    directory = data.attempt(attempt.attempt_id)
    for name in ("", "jobs", "sources", "supervision"):
        _make_folder(directory / name, group=uid if name != "supervision" else None)
    for name in ("weights", "checkpoints", "home"):
        _make_folder(directory / name, owner=uid)
    ports = attempt.ports
    path = directory / ATTEMPT_FILE
    write_json(
        path,
        AttemptFile(
            run_id=attempt.run_id,
            attempt_id=attempt.attempt_id,
            attempt_number=attempt.attempt_number,
            epoch=attempt.epoch,
            spec=attempt.spec,
            directory=str(directory),
            model_directory=str(inputs.model_directory),
            initial_weights=attempt.initial_weights,
            dataset_file=str(inputs.dataset_file),
            evaluation_file=str(inputs.evaluation_file) if inputs.evaluation_file else None,
            resume_directory=str(inputs.resume_directory) if inputs.resume_directory else None,
            tokens_generated_before=attempt.tokens_generated_before,
            source_files=_place_sources(directory / "sources", inputs.source_files, group=uid),
            **_servers(attempt),
            engine_ports=numbered_ports(ports, "engine"),
            session_ports=numbered_ports(ports, "session"),
            playground_port=ports.get("playground-0", 0),
            token=attempt.token,
            node_python=node_python,
            device=device,
            gpu_share=1 / slots_per_gpu,
            evaluators=attempt.evaluators,
            listener=_listener(attempt),
            gang=_gang(attempt),
            reward_origins=attempt.reward_origins,
        ),
        group=uid,
    )
    write_live(data, attempt)
    return path


def write_live(data: DataDirectory, attempt: DesiredAttempt) -> None:
    """Write the run's runtime overrides for its jobs, once the attempt is prepared."""
    directory = data.attempt(attempt.attempt_id)
    if attempt.live.revision == 0 or not (directory / ATTEMPT_FILE).exists():
        return
    path = directory / LIVE_FILE
    if not path.exists() or msgspec.json.decode(path.read_bytes(), type=RuntimeOverrides) != attempt.live:
        write_json(path, attempt.live, group=_group_of(directory))


def _place_sources(folder: Path, sources: Mapping[str, Path], *, group: int | None) -> dict[str, str]:
    """Copy uploaded source files to names that read well in tracebacks: sources/reward.py."""
    placed = {}
    for kind, cached in sources.items():
        file = shutil.copyfile(cached, folder / f"{kind}.py")
        if group is not None:
            os.chown(file, -1, group)
            file.chmod(0o640)
        placed[kind] = str(file)
    return placed


def _make_folder(folder: Path, *, owner: int | None = None, group: int | None = None) -> None:
    """Create a directory; `owner` owns it, `group` may read it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if owner is not None:
        os.chown(folder, owner, owner)
    elif group is not None:
        os.chown(folder, -1, group)
        folder.chmod(0o750)


def _group_of(attempt_directory: Path) -> int | None:
    """The group that may read an attempt's files, if the attempt has its own uid."""
    found = attempt_directory.stat()
    return found.st_gid if os.geteuid() == 0 and found.st_gid != os.getegid() else None


def numbered_ports(ports: Mapping[str, int], kind: str) -> list[int]:
    """Ports named engine-0, engine-1, ... in the order of their number."""
    numbers = sorted(int(name.removeprefix(f"{kind}-")) for name in ports if name.startswith(f"{kind}-"))
    return [ports[f"{kind}-{number}"] for number in numbers]


def _servers(attempt: DesiredAttempt) -> dict[str, str]:
    """Where the attempt's jobs reach its controller, its reward service, and its weights if those are elsewhere."""
    node = attempt.trainer_node
    if node is None:
        ports = attempt.ports
        return {
            "controller_url": _url(LOOPBACK, ports.get("controller")),
            "reward_url": _url(LOOPBACK, ports.get("reward")),
        }
    urls = {f"{name}_url": _url(node.address, port, scheme="https") for name, port in node.ports.items()}
    return {**urls, "certificate": node.certificate}


def _listener(attempt: DesiredAttempt) -> PeerListenerFile | None:
    if attempt.listener is None:
        return None
    return PeerListenerFile(
        address=attempt.listener.address,
        certificate=attempt.listener.certificate,
        private_key=attempt.listener.private_key,
        weights_port=attempt.ports["weights"],
    )


def _gang(attempt: DesiredAttempt) -> TrainerGangFile | None:
    if attempt.gang is None:
        return None
    return TrainerGangFile(
        address=attempt.gang.address,
        port=attempt.gang.port,
        nodes=attempt.gang.nodes,
        node_rank=attempt.gang.node_rank,
        interface=interface_of(attempt.gang.own_address),
    )


def attempt_port_conflict(attempt: DesiredAttempt) -> str:
    """Describe the first port of the attempt that is in use on this node; "" if all are free."""
    conflict = port_conflict({name: port for name, port in attempt.ports.items() if name not in PEERS_ONLY})
    gang = attempt.gang
    if not conflict and gang is not None and gang.node_rank == 0:
        conflict = port_conflict({RENDEZVOUS: gang.port}, address=gang.address)
    if conflict or attempt.listener is None:
        return conflict
    served = {name: attempt.ports[name] for name in PEER_PORTS}
    return port_conflict(served, address=attempt.listener.address)


def port_conflict(ports: Mapping[str, int], *, address: str = LOOPBACK) -> str:
    """Describe the first of these ports that is in use at the address; "" if all are free."""
    for name, port in sorted(ports.items()):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                where = "on this node" if address == LOOPBACK else f"at its peer address {address}"
                return f"port {port} ({name}) cannot be bound {where}: {error.strerror}"
    return ""


def make_job_directory(directory: Path, record: JobRecord, *, uid: int | None) -> None:
    """Create the working directory of one incarnation. An existing one belongs to the job and is not changed."""
    if (directory / "outbox").exists() and directory.stat().st_uid == (os.geteuid() if uid is None else uid):
        return
    _make_folder(directory)
    write_json(directory / JOB_FILE, job_file(record))
    (directory / "outbox").mkdir(mode=0o700, exist_ok=True)
    if uid is not None:
        for path in (
            directory / JOB_FILE,
            directory / "outbox",
            directory,
        ):  # the directory last: it marks completion
            os.chown(path, uid, uid)


def environment(
    data: DataDirectory, record: JobRecord, *, device: str, interface: str = "lo"
) -> dict[str, str]:
    """The environment of a job as stored on disk: without secrets, and without the agent's own variables. Ranks of a
    trainer listen on `interface`."""
    values = {
        # Isolated jobs see the system's programs, but not every directory of the agent's PATH.
        "PATH": ":".join(dict.fromkeys([*os.environ.get("PATH", "").split(":"), *SYSTEM_PATH])).strip(":"),
        "HOME": str(data.attempt(record.attempt_id) / "home"),
        "USER": JOB_USER,  # an attempt's uid has no entry in /etc/passwd, and libraries need a name
        "LOGNAME": JOB_USER,
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        processes.MARK: record.job_id,
    }
    if device == "cuda":
        values["CUDA_VISIBLE_DEVICES"] = visible_devices(record.slots)
        values |= cuda_host.environment(os.environ)
    return values


def start(
    data: DataDirectory,
    record: JobRecord,
    *,
    attempt: AttemptFile,
    command: Command,
    device: str,
    orphan_ttl_seconds: float,
    isolation: NodeIsolation,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """Start the record's current incarnation under a supervisor, and wait until the supervisor has recorded it.

    The supervisor runs in its own session, so it and the job outlive the agent. Starting the same incarnation again has
    no effect: a job directory is used once. `secrets` (variable -> value) reach the supervisor through a pipe only.
    Raises LaunchError if the supervisor does not start; its output is in `supervisor.log`.
    """
    directory = data.job(record.attempt_id, record.name, record.incarnation)
    attempt_directory = data.attempt(record.attempt_id)
    attempt_file = attempt_directory / ATTEMPT_FILE
    uid = isolation.uid_of(attempt_directory) if isolation.uids is not None else None
    make_job_directory(directory, record, uid=uid)
    supervision = data.supervision(record.attempt_id, record.name, record.incarnation)
    _make_folder(supervision)
    temporary = supervision / TEMPORARY
    _make_folder(temporary, owner=uid)
    temporary.chmod(TEMPORARY_MODE)
    isolated = isolation.kind is not JobIsolation.NONE
    order = supervision / "order.json"
    context = JobContext(
        attempt=attempt, attempt_file=attempt_file, job_directory=directory, slots=record.slots
    )
    write_json(
        order,
        {
            "job_id": record.job_id,
            "incarnation": record.incarnation,
            "directory": str(directory),
            "supervision": str(supervision),
            "temporary": str(temporary),
            "isolated": isolated,
            "command": isolation.wrap(command(context), attempt, directory=directory, temporary=temporary),
            "environment": environment(
                data, record, device=device, interface=attempt.gang.interface if attempt.gang else "lo"
            ),
            "has_secrets": bool(secrets),
            "record": str(data.supervisor(record.job_id)),
            "contact": str(data.contact),
            "orphan_ttl_seconds": orphan_ttl_seconds,
            "grace_seconds": record.grace_seconds,
        },
    )
    written_before = _mtime(data.supervisor(record.job_id))
    with (supervision / "supervisor.log").open("ab") as log:
        # -S skips site-packages: the supervisor needs only the standard library and this package.
        supervisor = subprocess.Popen(
            [sys.executable, "-S", "-m", "gpu_agents.agent.job_supervisor", str(order)],
            stdin=subprocess.PIPE if secrets else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=supervision,
            env={"PYTHONPATH": SUPERVISOR_PATH, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            start_new_session=True,
        )
    deadline = time.monotonic() + SUPERVISOR_START_SECONDS
    in_time = supervisor.stdin is None or _send_secrets(supervisor.stdin, secrets, deadline=deadline)
    while _mtime(data.supervisor(record.job_id)) == written_before:
        code = supervisor.poll()
        if code == ALREADY_SUPERVISED:
            if _recorded(data.supervisor(record.job_id)) == record.incarnation:
                break  # an earlier agent started it
        elif code is not None:
            if (supervision / EXIT_FILE).exists():
                break  # it has already finished
            output = (supervision / "supervisor.log").read_text(errors="replace").strip().splitlines()
            raise LaunchError(
                f"the supervisor of {record.name} ended with status {code} before the job was started: "
                f"{output[-1] if output else 'no output'}"
            )
        if not in_time or time.monotonic() > deadline:
            supervisor.kill()
            supervisor.wait()
            raise LaunchError(
                f"the supervisor of {record.name} did not start within {SUPERVISOR_START_SECONDS:g} s"
            )
        time.sleep(0.01)
    return supervisor


def job_file(record: JobRecord) -> JobFile:
    return JobFile(
        job_id=record.job_id,
        name=record.name,
        kind=record.kind,
        index=record.index,
        incarnation=record.incarnation,
        engine_port=record.engine_port,
        session_port=record.session_port,
        evaluates=record.evaluates,
        slots=record.slots,
    )


def _send_secrets(pipe: IO[bytes], secrets: Mapping[str, str], *, deadline: float) -> bool:
    """Write the secrets to the supervisor; return False at the deadline. A pipe buffers only 64 KiB."""
    left = memoryview(msgspec.json.encode(secrets))
    with pipe:
        os.set_blocking(pipe.fileno(), False)
        room = select.poll()
        room.register(pipe, select.POLLOUT)
        while left:
            if not room.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return False
            try:
                left = left[os.write(pipe.fileno(), left) :]
            except BrokenPipeError:
                break  # it exited without reading; the caller finds out why
    return True


def _files(context: JobContext) -> list[str]:
    return ["--attempt", str(context.attempt_file), "--job", str(context.job_directory)]


def _url(address: str, port: int | None, *, scheme: str = "http") -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}" if port else ""


def _recorded(path: Path) -> int | None:
    """The incarnation in the supervisor's record, if there is one."""
    return read_json(path, SupervisorRecord).incarnation if path.exists() else None


def _mtime(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
