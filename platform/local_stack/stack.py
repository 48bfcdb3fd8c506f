"""Set-up, start, stop, state and removal of one clone's stack."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_stack import configuration, dashboard, environments, jobs, ports, preflight
from local_stack.bootstrap import django
from local_stack.errors import StackError
from local_stack.files import bytes_below, human, locked, read_json, tail
from local_stack.identity import Identity, end_group, read_pid_file, wait_gone
from local_stack.places import Places

Say = Callable[[str], None]
UP_WITHIN_SECONDS = 240.0
DOWN_WITHIN_SECONDS = 24.0
SERVICE_NAMES = (  # in the order of stopping
    "agent", "beat", "webhooks", "worker", "web", "valkey", "postgres",
)  # fmt: skip


@dataclass(frozen=True)
class Started:
    """What `up` found or made."""

    url: str
    was_running: bool


def set_up(places: Places, *, device: str, say: Say, quiet_preflight: bool = False) -> None:
    """Preflight and environments; a second call takes well under a second."""
    wanted = [
        environments.platform_environment(places),
        environments.node_environment(places, device=device),
    ]
    ready = all(environment.is_ready() for environment in wanted)
    if device == "cuda" and not preflight.gpus():
        raise StackError(
            "DEVICE=cuda, but no NVIDIA driver shows a GPU here; leave DEVICE away to use the CPU"
        )
    if ready and quiet_preflight:
        return
    say("Checking this machine …")
    preflight.check(places, device=device, environments_ready=ready, say=say)
    for environment in wanted:
        environments.ensure(environment, places=places, say=say)


def up(places: Places, *, device: str, say: Say) -> Started:
    """Bring the stack up, or find it up. Raises StackError with the reason and the end of the log."""
    set_up(places, device=device, say=say, quiet_preflight=True)
    busy = "another `up` or `down` of this checkout is at work; try again when it has finished"
    with locked(places.run / "up.lock", timeout_seconds=UP_WITHIN_SECONDS, busy=busy):
        dashboard.build_if_needed(places, say=say)
        before = configuration.read_configuration(places)
        if is_running(places) and before is not None:
            if before.code != configuration.code_digest(places):
                say("The code has changed since this stack was started: `manage.py down` and `up` load it.")
            return Started(url=before.url, was_running=True)
        _ask_keeper_to_stop(places)  # one that failed or is half way down
        configuration.prepare_data_folder(places)
        held = before.ports if before else {}
        own = {port for name, port in held.items() if read_pid_file(places.run / f"{name}.json") is not None}
        register = places.home / "ports.json"
        with ports.reserved(
            register, clone_root=places.root, before=held, environ=os.environ, own=own
        ) as chosen_ports:
            chosen = configuration.decide(places, ports=chosen_ports, device=device, environ=os.environ)
            configuration.write_configuration(places, chosen)
            configuration.write_env_file(places, configuration.django_variables(places, chosen, os.environ))
            say(f"Starting: {_summary(chosen)} …")
            keeper = _start_keeper(places)
            try:
                _wait_until_up(places, keeper)
            except BaseException:  # interrupted, or it failed: leave nothing half up
                keeper.terminate()
                keeper.wait(timeout=DOWN_WITHIN_SECONDS)
                raise
        return Started(url=chosen.url, was_running=False)


def is_running(places: Places) -> bool:
    """Whether the keeper lives and has brought everything up."""
    keeper = read_pid_file(places.run / "keeper.json")
    return keeper is not None and read_json(places.run / "status.json").get("phase") == "running"


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
    return ", ".join(named + [f"{name} as given" for name in external])


def _start_keeper(places: Places) -> subprocess.Popen[bytes]:
    (places.run / "status.json").unlink(missing_ok=True)
    places.logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(places.root / "platform"), "PYTHONUNBUFFERED": "1"}
    command = [configuration.keeper_python(places), "-m", "local_stack.keeper", "--root", str(places.root)]
    with (places.logs / "keeper.log").open("ab") as log:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=places.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_up(places: Places, keeper: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_WITHIN_SECONDS
    while time.monotonic() < deadline:
        ended = keeper.poll() is not None  # asked first: what it said at its end is read after it
        status = read_json(places.run / "status.json")
        phase = status.get("phase")
        if phase == "running":
            return
        if phase in ("failed", "stopped"):
            raise StackError(f"the stack did not start: {status.get('error') or phase}")
        if ended:
            raise StackError(f"the keeper ended at once:\n{tail(places.logs / 'keeper.log')}")
        time.sleep(0.1)
    raise StackError(
        f"the stack was not up within {UP_WITHIN_SECONDS:.0f} s; see {places.logs}, then "
        "`python3 manage.py down` and try again"
    )


def _ask_keeper_to_stop(places: Places) -> None:
    keeper = read_pid_file(places.run / "keeper.json")
    if keeper is None:
        return
    keeper.signal(signal.SIGTERM)
    if wait_gone([keeper], timeout_seconds=DOWN_WITHIN_SECONDS):
        end_group(keeper, grace_seconds=0.0, first=signal.SIGKILL)


def down(places: Places, *, say: Say) -> int:
    """Stop everything of this clone, whoever started it; returns how many processes were ended."""
    count = len(live_services(places)) + len(jobs.live_jobs(places.agent_data))
    _ask_keeper_to_stop(places)
    # What a killed keeper left behind: the agent first, so that it starts nothing, its jobs, then the rest.
    left = live_services(places)
    if "agent" in left:
        end_group(left["agent"], grace_seconds=4.0)
    jobs.end_all(places)
    for name in ("beat", "webhooks", "worker", "web"):
        if name in left:
            left[name].signal(signal.SIGTERM)
    for name in SERVICE_NAMES:
        if name in left:
            stop_signal = signal.SIGINT if name == "postgres" else signal.SIGTERM
            end_group(left[name], grace_seconds=4.0, first=stop_signal)
        (places.run / f"{name}.json").unlink(missing_ok=True)
    say("Nothing of this clone was running." if count == 0 else f"Stopped {count} process(es); data is kept.")
    return count


def live_services(places: Places) -> dict[str, Identity]:
    """Services of this clone that are alive, by name."""
    found = {}
    for name in SERVICE_NAMES:
        identity = read_pid_file(places.run / f"{name}.json")
        if identity is not None:
            found[name] = identity
    return found


def rows_of_processes(places: Places) -> list[tuple[str, str, str, str, str]]:
    """For `ps`: name, state, pid, address, remark."""
    chosen = configuration.read_configuration(places)
    status = read_json(places.run / "status.json")
    live = live_services(places)
    keeper = read_pid_file(places.run / "keeper.json")
    rows = [
        (
            "keeper",
            "running" if keeper else "stopped",
            str(keeper.pid) if keeper else "",
            "",
            str(status.get("phase", "")) if keeper else "",
        )
    ]
    known = status.get("services", {})
    for name in reversed(SERVICE_NAMES):
        port = chosen.ports.get(name) if chosen else None
        if chosen and name in ("postgres", "valkey") and port is None:
            rows.append((name, "external", "", "", "named by its URL"))
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
    for job in jobs.live_jobs(places.agent_data):
        rows.append((job.job_id, "running", str(job.supervisor.pid), "", Path(job.directory).name))
    return rows


def login_link(places: Places) -> str:
    """A new single-use link that logs the first user in."""
    chosen = configuration.read_configuration(places)
    if chosen is None or not is_running(places):
        raise StackError("the stack is not running: `python3 manage.py up`")
    path = django(places, configuration.read_env_file(places), "login_link").strip().splitlines()[-1].strip()
    return path if path.startswith("http") else chosen.url + path


def forwarding_line(url: str, environ: dict[str, str], *, user: str, host: str) -> str:
    """Over SSH: what to type at home to reach the dashboard here; empty otherwise."""
    if not environ.get("SSH_CONNECTION"):
        return ""
    port = url.rpartition(":")[2]
    address = environ["SSH_CONNECTION"].split()[2] if len(environ["SSH_CONNECTION"].split()) > 2 else host
    return f"ssh -N -L {port}:127.0.0.1:{port} {user}@{address}"


def sizes_to_clean(places: Places, *, everything: bool) -> list[tuple[Path, str, int]]:
    """What `clean` would delete: path, what it is, bytes."""
    wanted = [
        (places.data, "databases, uploads, checkpoints, jobs of this clone"),
        (places.var, "logs, state"),
    ]
    if everything:
        wanted += [
            (places.venv, "platform environment"),
            (places.webui / "node_modules", "the dashboard's packages"),
            (places.webui / "dist", "the built dashboard"),
            (places.environments, "node environments, shared by all clones of this user"),
            (places.home / "programs", "copies of the databases' programs, shared"),
        ]
    present = [(path, what) for path, what in wanted if path.exists()]
    outside = [(p, w) for p, w in present if not any(p != q and p.is_relative_to(q) for q, _ in present)]
    return [(path, what, bytes_below(path)) for path, what in outside]


def clean(places: Places, *, everything: bool, confirmed: Callable[[str], bool], say: Say) -> bool:
    """Name what would be deleted with its size, ask, stop the stack, delete. False if not confirmed."""
    found = sizes_to_clean(places, everything=everything)
    if not found:
        say("There is nothing to delete.")
        return True
    for path, what, size in found:
        say(f"  {human(size):>9}  {path}  ({what})")
    total = human(sum(size for _, _, size in found))
    if not confirmed(f"Delete {total}? This cannot be undone."):
        say("Nothing was deleted.")
        return False
    down(places, say=say)
    for path, _, _ in found:
        shutil.rmtree(path)
    say(f"Deleted {total}.")
    return True
