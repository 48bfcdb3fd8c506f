"""Set up, start, stop, inspect and delete the stack of one clone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_stack import configuration, dashboard, environments, jobs, ports, preflight, sync_client
from local_stack.bootstrap import django
from local_stack.errors import StackError
from local_stack.files import disk_usage, file_lock, format_bytes, read_json, tail
from local_stack.paths import Paths
from local_stack.pid_files import read_pid_file
from oolong.system.process_handle import ProcessHandle, terminate_group, wait_exited

UP_TIMEOUT_SECONDS = 240.0
DOWN_TIMEOUT_SECONDS = 24.0
SERVICE_NAMES = (  # in stop order
    "agent", "beat", "webhooks", "worker", "web", "valkey", "postgres",
)  # fmt: skip


@dataclass(frozen=True)
class UpResult:
    """Result of `up`."""

    url: str
    was_running: bool


def set_up(paths: Paths, *, device: str, echo: environments.Echo, quiet_preflight: bool = False) -> None:
    """Run the preflight checks and create the environments. A second call takes well under a second."""
    wanted = [
        environments.platform_environment(paths),
        environments.node_environment(paths, device=device),
    ]
    ready = all(environment.is_ready() for environment in wanted)
    if device == "cuda" and not preflight.gpus():
        raise StackError("DEVICE=cuda, but the NVIDIA driver shows no GPU. Unset DEVICE to use the CPU.")
    if ready and quiet_preflight:
        sync_client.ensure(paths)
        return
    echo("Checking this machine …")
    preflight.check(paths, device=device, environments_ready=ready, echo=echo)
    for environment in wanted:
        environments.ensure(environment, paths=paths, echo=echo)
    sync_client.ensure(paths)


def up(paths: Paths, *, device: str, echo: environments.Echo) -> UpResult:
    """Start the stack unless it is running. Raises StackError with the reason and the end of the log."""
    set_up(paths, device=device, echo=echo, quiet_preflight=True)
    busy = "another `up` or `down` of this checkout is running; try again when it has finished"
    with file_lock(paths.run / "up.lock", timeout_seconds=UP_TIMEOUT_SECONDS, busy=busy):
        dashboard.build_if_needed(paths, echo=echo)
        before = configuration.read_configuration(paths)
        if is_running(paths) and before is not None:
            if before.code != configuration.code_digest(paths):
                echo(
                    "The code has changed since this stack started. Run `manage.py down` and `up` to load it."
                )
            return UpResult(url=before.url, was_running=True)
        _stop_supervisor(paths)  # it may have failed or be shutting down
        configuration.prepare_data_folder(paths)
        held = before.ports if before else {}
        own = {port for name, port in held.items() if read_pid_file(paths.run / f"{name}.json") is not None}
        register = paths.home / "ports.json"
        with ports.reserve(
            register, clone_root=paths.root, before=held, environ=os.environ, own=own
        ) as chosen_ports:
            chosen = configuration.resolve(paths, ports=chosen_ports, device=device, environ=os.environ)
            configuration.write_configuration(paths, chosen)
            configuration.write_env_file(paths, configuration.django_variables(paths, chosen, os.environ))
            echo(f"Starting: {_summary(chosen)} …")
            supervisor = _start_supervisor(paths)
            try:
                _wait_until_up(paths, supervisor)
            except BaseException:  # interrupted or failed: do not leave a partial stack
                supervisor.terminate()
                supervisor.wait(timeout=DOWN_TIMEOUT_SECONDS)
                raise
        return UpResult(url=chosen.url, was_running=False)


def is_running(paths: Paths) -> bool:
    """Whether the supervisor is alive and has started all services."""
    supervisor = read_pid_file(paths.run / "supervisor.json")
    return supervisor is not None and read_json(paths.run / "status.json").get("phase") == "running"


def _summary(chosen: configuration.StackConfiguration) -> str:
    named = [f"{name} on {port}" for name, port in chosen.ports.items()]
    external = [
        name
        for name, embedded in (
            ("DATABASE_URL", chosen.embedded_postgres),
            ("REDIS_URL", chosen.embedded_valkey),
        )
        if not embedded
    ]
    return ", ".join(named + [f"external {name}" for name in external])


def _start_supervisor(paths: Paths) -> subprocess.Popen[bytes]:
    (paths.run / "status.json").unlink(missing_ok=True)
    paths.logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(paths.root / "platform"), "PYTHONUNBUFFERED": "1"}
    command = [
        configuration.supervisor_python(paths),
        "-m",
        "local_stack.supervisor",
        "--root",
        str(paths.root),
    ]
    with (paths.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=paths.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_up(paths: Paths, supervisor: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        exited = supervisor.poll() is not None  # poll first, so that the final status is read after the exit
        status = read_json(paths.run / "status.json")
        phase = status.get("phase")
        if phase == "running":
            return
        if phase in ("failed", "stopped"):
            raise StackError(f"the stack did not start: {status.get('error') or phase}")
        if exited:
            raise StackError(f"the supervisor exited:\n{tail(paths.logs / 'supervisor.log')}")
        time.sleep(0.1)
    raise StackError(
        f"the stack was not up within {UP_TIMEOUT_SECONDS:.0f} s; see {paths.logs}, then "
        "`python3 manage.py down` and try again"
    )


def _stop_supervisor(paths: Paths) -> None:
    supervisor = read_pid_file(paths.run / "supervisor.json")
    if supervisor is None:
        return
    supervisor.signal(signal.SIGTERM)
    if wait_exited([supervisor], timeout_seconds=DOWN_TIMEOUT_SECONDS):
        terminate_group(supervisor, grace_seconds=0.0, first=signal.SIGKILL)


def down(paths: Paths, *, echo: environments.Echo) -> int:
    """Stop all processes of this clone and return how many were stopped."""
    count = len(live_services(paths)) + len(jobs.live_jobs(paths.agent_data))
    _stop_supervisor(paths)
    # Processes that a killed supervisor left: the agent first, so that it starts no jobs, then its jobs, then the rest.
    left = live_services(paths)
    if "agent" in left:
        terminate_group(left["agent"], grace_seconds=4.0)
    jobs.terminate_all(paths)
    for name in ("beat", "webhooks", "worker", "web"):
        if name in left:
            left[name].signal(signal.SIGTERM)
    for name in SERVICE_NAMES:
        if name in left:
            stop_signal = signal.SIGINT if name == "postgres" else signal.SIGTERM
            terminate_group(left[name], grace_seconds=4.0, first=stop_signal)
        (paths.run / f"{name}.json").unlink(missing_ok=True)
    echo(
        "This clone had no running processes."
        if count == 0
        else f"Stopped {count} process(es); data is kept."
    )
    return count


def live_services(paths: Paths) -> dict[str, ProcessHandle]:
    """Live services of this clone by name."""
    found = {}
    for name in SERVICE_NAMES:
        handle = read_pid_file(paths.run / f"{name}.json")
        if handle is not None:
            found[name] = handle
    return found


def process_rows(paths: Paths) -> list[tuple[str, str, str, str, str]]:
    """Rows for `ps`: name, state, pid, address, note."""
    chosen = configuration.read_configuration(paths)
    status = read_json(paths.run / "status.json")
    live = live_services(paths)
    supervisor = read_pid_file(paths.run / "supervisor.json")
    rows = [
        (
            "supervisor",
            "running" if supervisor else "stopped",
            str(supervisor.pid) if supervisor else "",
            "",
            str(status.get("phase", "")) if supervisor else "",
        )
    ]
    known = status.get("services", {})
    for name in reversed(SERVICE_NAMES):
        port = chosen.ports.get(name) if chosen else None
        if chosen and name in ("postgres", "valkey") and port is None:
            rows.append((name, "external", "", "", "configured by its URL"))
            continue
        restarts = known.get(name, {}).get("restarts", 0)
        rows.append(
            (
                name,
                "running" if name in live else "stopped",
                str(live[name].pid) if name in live else "",
                f"127.0.0.1:{port}" if port and name in live else "",
                f"restarted {restarts} times" if restarts else "",
            )
        )
    for job in jobs.live_jobs(paths.agent_data):
        rows.append((job.job_id, "running", str(job.supervisor.pid), "", Path(job.directory).name))
    return rows


def login_link(paths: Paths) -> str:
    """Create a single-use link that logs in the first user."""
    chosen = configuration.read_configuration(paths)
    if chosen is None or not is_running(paths):
        raise StackError("the stack is not running: `python3 manage.py up`")
    path = django(paths, configuration.read_env_file(paths), "login_link").strip().splitlines()[-1].strip()
    return path if path.startswith("http") else chosen.url + path


def ssh_forward_command(url: str, environ: dict[str, str], *, user: str, host: str) -> str:
    """SSH command that forwards the dashboard to the user's machine; empty outside an SSH session."""
    if not environ.get("SSH_CONNECTION"):
        return ""
    port = url.rpartition(":")[2]
    address = environ["SSH_CONNECTION"].split()[2] if len(environ["SSH_CONNECTION"].split()) > 2 else host
    return f"ssh -N -L {port}:127.0.0.1:{port} {user}@{address}"


def clean_targets(paths: Paths, *, everything: bool) -> list[tuple[Path, str, int]]:
    """What `clean` deletes: path, description, bytes."""
    wanted = [
        (paths.data, "databases, uploads, checkpoints, jobs of this clone"),
        (paths.var, "logs, state"),
    ]
    if everything:
        wanted += [
            (paths.venv, "platform environment"),
            (paths.webui / "node_modules", "dashboard packages"),
            (paths.webui / "dist", "dashboard build"),
            (paths.environments, "node environments, shared by all clones of this user"),
            (paths.home / "programs", "copies of the database programs, shared by all clones of this user"),
        ]
    present = [(path, what) for path, what in wanted if path.exists()]
    outside = [(p, w) for p, w in present if not any(p != q and p.is_relative_to(q) for q, _ in present)]
    return [(path, what, disk_usage(path)) for path, what in outside]


def clean(
    paths: Paths, *, everything: bool, confirmed: Callable[[str], bool], echo: environments.Echo
) -> bool:
    """List what to delete with sizes, ask for confirmation, stop the stack, delete. False if not confirmed."""
    found = clean_targets(paths, everything=everything)
    if not found:
        echo("Nothing to delete.")
        return True
    for path, what, size in found:
        echo(f"  {format_bytes(size):>9}  {path}  ({what})")
    total = format_bytes(sum(size for _, _, size in found))
    if not confirmed(f"Delete {total}? This cannot be undone."):
        echo("Nothing was deleted.")
        return False
    down(paths, echo=echo)
    for path, _, _ in found:
        shutil.rmtree(path)
    echo(f"Deleted {total}.")
    return True
