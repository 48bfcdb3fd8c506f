"""The keeper: one detached process per clone that starts the services in order and restarts those that die.

It is told to stop by SIGTERM. After a SIGKILL the services live on; the next keeper finds them by their
pid files and looks after them again. Its state is var/run/status.json, which `up` and `ps` read.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_stack import bootstrap, configuration, jobs
from local_stack.errors import StackError
from local_stack.files import locked, read_json, tail, write_json
from local_stack.identity import Identity, end_group, identity_of, read_pid_file, write_pid_file
from local_stack.places import Places, places_here
from local_stack.services import CONTROL_PLANE, NODE, STORES, Service, services_of

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 30.0
CALM_SECONDS = 60.0  # a service that lived this long starts again without delay
LOG_KEPT_BYTES = 20_000_000
WATCH_SECONDS = 0.25


@dataclass
class Kept:
    """A service with what the keeper knows of its process."""

    service: Service
    identity: Identity | None = None
    process: subprocess.Popen[bytes] | None = None  # None for one that an earlier keeper started
    started_at: float = 0.0  # monotonic
    restarts: int = 0
    delay_seconds: float = 0.0
    next_start_at: float = 0.0  # monotonic
    last_error: str = ""

    def is_alive(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return self.identity is not None and self.identity.is_alive()


class Keeper:
    """Starts, watches and stops the services of one clone."""

    def __init__(
        self, places: Places, services: list[Service], *, before_stage: dict[str, Callable[[], None]]
    ) -> None:
        self.places = places
        self.kept = [Kept(service) for service in services]
        self.before_stage = before_stage
        self.stopping = False
        self.phase = "starting"

    def run(self) -> int:
        """Bring everything up, then watch until told to stop. The exit status says whether it came up."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            self._bring_up()
            self._status("running" if not self.stopping else "stopping")
            while not self.stopping:
                self._watch()
                time.sleep(WATCH_SECONDS)
        except StackError as error:
            self._stop_all()
            self._status("failed", error=str(error))
            return 1
        self._status("stopping")
        self._stop_all()
        self._status("stopped")
        return 0

    def _on_stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _bring_up(self) -> None:
        for stage in (STORES, CONTROL_PLANE, NODE):
            if self.stopping:
                return
            self._status(f"starting {stage}")
            if stage in self.before_stage:
                self.before_stage[stage]()
            kept = [item for item in self.kept if item.service.stage == stage]
            for item in kept:
                self._adopt_or_start(item)
            for item in kept:
                self._wait_ready(item)

    def _adopt_or_start(self, item: Kept) -> None:
        """Take over the live process of an earlier keeper, if it is what would be started now."""
        pid_file = self._pid_file(item)
        found = read_pid_file(pid_file)
        if found is not None:
            if read_json(pid_file).get("argv") == item.service.argv:
                item.identity, item.started_at = found, time.monotonic()
                return
            end_group(found, grace_seconds=item.service.grace_seconds, first=item.service.stop_signal)
        self._start(item)

    def _start(self, item: Kept) -> None:
        service = item.service
        service.before_start()
        log = self.places.logs / f"{service.name}.log"
        _keep_log_short(log)
        dropped: dict[str, Any] = service.run_as.popen_arguments() if service.run_as else {}
        with log.open("ab") as stream:
            item.process = subprocess.Popen(
                service.argv,
                env=service.environment,
                cwd=service.directory,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **dropped,
            )
        item.identity = identity_of(item.process.pid)
        item.started_at = time.monotonic()
        if item.identity is not None:
            write_pid_file(self._pid_file(item), item.identity, name=service.name, argv=service.argv)

    def _wait_ready(self, item: Kept) -> None:
        """Wait for a service's first answer; restart it meanwhile, as PostgreSQL may need after a crash."""
        deadline = time.monotonic() + item.service.ready_within_seconds
        while not self.stopping:
            self._watch()
            if item.is_alive() and item.service.is_ready():
                return
            if time.monotonic() > deadline:
                log = self.places.logs / f"{item.service.name}.log"
                raise StackError(
                    f"{item.service.name} was not ready within {item.service.ready_within_seconds:.0f} s. "
                    f"The end of {log}:\n{tail(log)}"
                )
            time.sleep(0.1)

    def _watch(self) -> None:
        """Start again what has died, later and later while it keeps dying."""
        now = time.monotonic()
        for item in self.kept:
            if item.identity is None and item.process is None:
                continue  # its stage has not begun
            if item.is_alive():
                continue
            if item.next_start_at == 0.0:
                if now - item.started_at > CALM_SECONDS:
                    item.delay_seconds = 0.0
                item.next_start_at = now + item.delay_seconds
                item.delay_seconds = min(
                    LONGEST_DELAY_SECONDS, max(FIRST_DELAY_SECONDS, 2 * item.delay_seconds)
                )
                code = "" if item.process is None else f" with status {item.process.returncode}"
                item.last_error = f"ended{code}"
                print(f"{item.service.name} ended{code}; starting it again", flush=True)
            if now >= item.next_start_at:
                item.next_start_at = 0.0
                item.restarts += 1
                self._start(item)
                self._status(self.phase)

    def _stop_all(self) -> None:
        """Stop in the opposite order, each stage at once, within 20 s in all."""
        self._stop_stage(NODE)
        jobs.end_all(self.places)
        self._stop_stage(CONTROL_PLANE)
        self._stop_stage(STORES)

    def _stop_stage(self, stage: str) -> None:
        items = [item for item in self.kept if item.service.stage == stage and item.identity is not None]
        for item in items:
            if item.identity is not None:
                item.identity.signal(item.service.stop_signal)
        grace = max((item.service.grace_seconds for item in items), default=0.0)
        deadline = time.monotonic() + grace
        while any(item.is_alive() for item in items) and time.monotonic() < deadline:
            time.sleep(0.05)
        for item in items:
            if item.identity is not None and item.is_alive():
                print(f"{item.service.name} did not stop in {grace:.0f} s; killing it", flush=True)
                end_group(item.identity, grace_seconds=0.0, first=signal.SIGKILL)
        for item in items:
            self._pid_file(item).unlink(missing_ok=True)

    def _pid_file(self, item: Kept) -> Path:
        return self.places.run / f"{item.service.name}.json"

    def _status(self, phase: str, *, error: str = "") -> None:
        self.phase = phase
        services = {
            item.service.name: {
                "pid": item.identity.pid if item.identity else None,
                "restarts": item.restarts,
                "last_error": item.last_error,
            }
            for item in self.kept
        }
        record = {"phase": phase, "error": error, "keeper_pid": os.getpid(), "services": services}
        write_json(self.places.run / "status.json", record)


def _keep_log_short(log: Path) -> None:
    """Put a large log aside when its writer starts anew; one older one is kept."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
        log.replace(log.with_suffix(".log.1"))


def keeper_of(places: Places) -> Keeper:
    """The keeper of what the last `up` has decided."""
    chosen = configuration.read_configuration(places)
    if chosen is None:
        raise StackError(f"{places.stack_file} is missing: start with `python3 manage.py up`")
    variables = configuration.read_env_file(places)
    before_stage: dict[str, Callable[[], None]] = {
        CONTROL_PLANE: lambda: bootstrap.prepare_database(places, chosen, variables)
    }
    if chosen.agent:
        before_stage[NODE] = lambda: bootstrap.prepare_enrollment(places, variables)
    return Keeper(places, services_of(places, chosen, variables), before_stage=before_stage)


def main() -> int:
    parser = argparse.ArgumentParser(description="Keeps the services of one checkout running.")
    parser.add_argument("--root", type=Path, required=True)
    places = places_here(parser.parse_args().root)
    busy = "another keeper of this checkout is running"
    with locked(places.run / "keeper.lock", timeout_seconds=2.0, busy=busy):
        identity = identity_of(os.getpid())
        if identity is None:
            raise StackError("/proc does not show this process; is /proc mounted?")
        write_pid_file(places.run / "keeper.json", identity)
        try:
            return keeper_of(places).run()
        except StackError as error:
            write_json(places.run / "status.json", {"phase": "failed", "error": str(error), "services": {}})
            return 1
        finally:
            (places.run / "keeper.json").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
