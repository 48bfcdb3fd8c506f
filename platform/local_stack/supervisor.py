"""Start the services of one clone in order and restart those that exit. One detached process per clone.

SIGTERM stops the supervisor and its services. After a SIGKILL the services keep running; the next supervisor
finds them by their pid files and adopts them. `up` and `ps` read its state from var/run/status.json.
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
from local_stack.files import file_lock, read_json, tail, write_json
from local_stack.paths import Paths, checkout_paths
from local_stack.pid_files import read_pid_file, write_pid_file
from local_stack.services import CONTROL_PLANE, NODE, STORES, Service, build_services
from oolong.system.process_handle import ProcessHandle, find_process, terminate_group

FIRST_RESTART_DELAY_SECONDS, MAX_RESTART_DELAY_SECONDS = 0.5, 30.0
STABLE_SECONDS = 60.0  # after this uptime, the restart delay resets
LOG_ROTATE_BYTES = 20_000_000
POLL_SECONDS = 0.25


@dataclass
class ManagedProcess:
    """A service and the state of its process."""

    service: Service
    handle: ProcessHandle | None = None
    popen: subprocess.Popen[bytes] | None = None  # None for an adopted process
    started_at: float = 0.0  # monotonic
    restarts: int = 0
    delay_seconds: float = 0.0
    next_start_at: float = 0.0  # monotonic
    last_error: str = ""

    def is_alive(self) -> bool:
        if self.popen is not None:
            return self.popen.poll() is None
        return self.handle is not None and self.handle.is_alive()


class Supervisor:
    """Starts, monitors and stops the services of one clone."""

    def __init__(
        self, paths: Paths, services: list[Service], *, before_stage: dict[str, Callable[[], None]]
    ) -> None:
        self.paths = paths
        self.processes = [ManagedProcess(service) for service in services]
        self.before_stage = before_stage
        self.stopping = False
        self.phase = "starting"

    def run(self) -> int:
        """Start all services and monitor them until a stop signal. Return 0, or 1 if the start failed."""
        signal.signal(signal.SIGTERM, self._on_stop_signal)
        signal.signal(signal.SIGINT, self._on_stop_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            self._start_all()
            self._write_status("running" if not self.stopping else "stopping")
            while not self.stopping:
                self._restart_dead()
                time.sleep(POLL_SECONDS)
        except StackError as error:
            self._stop_all()
            self._write_status("failed", error=str(error))
            return 1
        self._write_status("stopping")
        self._stop_all()
        self._write_status("stopped")
        return 0

    def _on_stop_signal(self, number: int, frame: object) -> None:
        self.stopping = True

    def _start_all(self) -> None:
        for stage in (STORES, CONTROL_PLANE, NODE):
            if self.stopping:
                return
            self._write_status(f"starting {stage}")
            if stage in self.before_stage:
                self.before_stage[stage]()
            stage_processes = [managed for managed in self.processes if managed.service.stage == stage]
            for managed in stage_processes:
                self._adopt_or_start(managed)
            for managed in stage_processes:
                self._wait_ready(managed)

    def _adopt_or_start(self, managed: ManagedProcess) -> None:
        """Adopt the live process of an earlier supervisor if its command line is unchanged; else start a new one."""
        pid_file = self._pid_file(managed)
        found = read_pid_file(pid_file)
        if found is not None:
            if read_json(pid_file).get("argv") == managed.service.argv:
                managed.handle, managed.started_at = found, time.monotonic()
                return
            terminate_group(
                found, grace_seconds=managed.service.grace_seconds, first=managed.service.stop_signal
            )
        self._start(managed)

    def _start(self, managed: ManagedProcess) -> None:
        service = managed.service
        service.before_start()
        log = self.paths.logs / f"{service.name}.log"
        _rotate_log(log)
        dropped: dict[str, Any] = service.run_as.popen_arguments() if service.run_as else {}
        with log.open("ab") as stream:
            managed.popen = subprocess.Popen(
                service.argv,
                env=service.environment,
                cwd=service.directory,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **dropped,
            )
        managed.handle = find_process(managed.popen.pid)
        managed.started_at = time.monotonic()
        if managed.handle is not None:
            write_pid_file(self._pid_file(managed), managed.handle, name=service.name, argv=service.argv)

    def _wait_ready(self, managed: ManagedProcess) -> None:
        """Wait until the service is ready. Restart it if it exits: PostgreSQL may need this after a crash."""
        deadline = time.monotonic() + managed.service.ready_timeout_seconds
        while not self.stopping:
            self._restart_dead()
            if managed.is_alive() and managed.service.is_ready():
                return
            if time.monotonic() > deadline:
                log = self.paths.logs / f"{managed.service.name}.log"
                raise StackError(
                    f"{managed.service.name} was not ready within {managed.service.ready_timeout_seconds:.0f} s. "
                    f"The end of {log}:\n{tail(log)}"
                )
            time.sleep(0.1)

    def _restart_dead(self) -> None:
        """Restart exited services, with exponential backoff."""
        now = time.monotonic()
        for managed in self.processes:
            if managed.handle is None and managed.popen is None:
                continue  # its stage has not started
            if managed.is_alive():
                continue
            if managed.next_start_at == 0.0:
                if now - managed.started_at > STABLE_SECONDS:
                    managed.delay_seconds = 0.0
                managed.next_start_at = now + managed.delay_seconds
                managed.delay_seconds = min(
                    MAX_RESTART_DELAY_SECONDS, max(FIRST_RESTART_DELAY_SECONDS, 2 * managed.delay_seconds)
                )
                code = "" if managed.popen is None else f" with status {managed.popen.returncode}"
                managed.last_error = f"exited{code}"
                print(f"{managed.service.name} exited{code}; restarting it", flush=True)
            if now >= managed.next_start_at:
                managed.next_start_at = 0.0
                managed.restarts += 1
                self._start(managed)
                self._write_status(self.phase)

    def _stop_all(self) -> None:
        """Stop the stages in reverse order, the services of a stage concurrently; at most 20 s in total."""
        self._stop_stage(NODE)
        jobs.terminate_all(self.paths)
        self._stop_stage(CONTROL_PLANE)
        self._stop_stage(STORES)

    def _stop_stage(self, stage: str) -> None:
        processes = [
            managed
            for managed in self.processes
            if managed.service.stage == stage and managed.handle is not None
        ]
        for managed in processes:
            if managed.handle is not None:
                managed.handle.signal(managed.service.stop_signal)
        grace = max((managed.service.grace_seconds for managed in processes), default=0.0)
        deadline = time.monotonic() + grace
        while any(managed.is_alive() for managed in processes) and time.monotonic() < deadline:
            time.sleep(0.05)
        for managed in processes:
            if managed.handle is not None and managed.is_alive():
                print(f"{managed.service.name} did not stop in {grace:.0f} s; killing it", flush=True)
                terminate_group(managed.handle, grace_seconds=0.0, first=signal.SIGKILL)
        for managed in processes:
            self._pid_file(managed).unlink(missing_ok=True)

    def _pid_file(self, managed: ManagedProcess) -> Path:
        return self.paths.run / f"{managed.service.name}.json"

    def _write_status(self, phase: str, *, error: str = "") -> None:
        self.phase = phase
        services = {
            managed.service.name: {
                "pid": managed.handle.pid if managed.handle else None,
                "restarts": managed.restarts,
                "last_error": managed.last_error,
            }
            for managed in self.processes
        }
        record = {"phase": phase, "error": error, "supervisor_pid": os.getpid(), "services": services}
        write_json(self.paths.run / "status.json", record)


def _rotate_log(log: Path) -> None:
    """Move a large log to `.log.1` before its writer restarts, replacing the previous one."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_ROTATE_BYTES:
        log.replace(log.with_suffix(".log.1"))


def build_supervisor(paths: Paths) -> Supervisor:
    """Build the supervisor from the configuration that the last `up` wrote."""
    chosen = configuration.read_configuration(paths)
    if chosen is None:
        raise StackError(f"{paths.stack_file} is missing: run `python3 manage.py up`")
    variables = configuration.read_env_file(paths)
    before_stage: dict[str, Callable[[], None]] = {
        CONTROL_PLANE: lambda: bootstrap.prepare_database(paths, chosen, variables)
    }
    if chosen.agent:
        before_stage[NODE] = lambda: bootstrap.prepare_join_token(paths, variables)
    return Supervisor(paths, build_services(paths, chosen, variables), before_stage=before_stage)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run and restart the services of one checkout.")
    parser.add_argument("--root", type=Path, required=True)
    paths = checkout_paths(parser.parse_args().root)
    busy = "another supervisor of this checkout is running"
    with file_lock(paths.run / "supervisor.lock", timeout_seconds=2.0, busy=busy):
        handle = find_process(os.getpid())
        if handle is None:
            raise StackError("/proc does not show this process; is /proc mounted?")
        write_pid_file(paths.run / "supervisor.json", handle)
        try:
            return build_supervisor(paths).run()
        except StackError as error:
            write_json(paths.run / "status.json", {"phase": "failed", "error": str(error), "services": {}})
            return 1
        finally:
            (paths.run / "supervisor.json").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
