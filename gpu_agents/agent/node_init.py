"""`python -m gpu_agents.agent.node_init --data-dir DIR [--grace SECONDS] -- AGENT COMMAND…`: process 1 of an agent's
container.

A container ends with its process 1, so process 1 is not the agent but this supervisor: it starts and restarts the
agent (jobs continue under their own supervisors) and reaps orphans. SIGHUP restarts the agent. SIGTERM stops the agent,
then the jobs, which have the grace period to write their checkpoints; it must be shorter than the container's.

With `--drain`, SIGTERM is for the agent, which drains the node, uploads what its runs save, leaves its pool and exits.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

from oolong.system.process_handle import become_subreaper

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
CANNOT_RUN = 2  # the agent's exit status for an invalid setting: a restart would not help
REVOKED = 3  # the agent's exit status after its node was revoked and its jobs terminated
LEFT = 4  # the agent's exit status after its node has left its pool
AGENT_SECONDS = 10.0  # for the agent to exit
STABLE_SECONDS = 60.0  # an agent that ran this long restarts at once
LONGEST_WAIT = 30.0


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    become_subreaper()  # for runs where it is not process 1
    status = supervise(options.agent, drain=options.drain)
    terminate_jobs = [
        sys.executable,
        "-m",
        "gpu_agents.agent",
        "terminate-jobs",
        "--data-dir",
        options.data_dir,
    ]
    ended = subprocess.run([*terminate_jobs, "--grace", str(options.grace)], preexec_fn=_unblock)
    return status or ended.returncode


def supervise(command: list[str], *, drain: bool = False) -> int:
    """Run the agent until this process is stopped, or the agent cannot run. Returns the exit status."""
    wait, first = 1.0, True
    while True:
        began = time.monotonic()
        agent = subprocess.Popen(command, preexec_fn=_unblock)
        status, stop = _serve(agent.pid, drain=drain)
        if stop or status in (REVOKED, LEFT) or (first and status == CANNOT_RUN):
            return 0 if stop or status == LEFT else status
        first = False
        wait = 1.0 if time.monotonic() - began >= STABLE_SECONDS else min(LONGEST_WAIT, 2 * wait)
        print(
            f"the agent exited with status {status}; its jobs continue, it restarts in {wait:g} s",
            file=sys.stderr,
        )
        if _wait_for_stop(within=wait):
            return 0


def _serve(agent: int, *, drain: bool) -> tuple[int, bool]:
    """Wait for the agent to exit, and forward signals. Returns its status and whether to stop."""
    stop = False
    kill_at: float | None = None
    while True:
        received = signal.sigtimedwait(WATCHED, 0.5 if kill_at else 60.0)
        number = received.si_signo if received is not None else 0
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            stop = stop or number != signal.SIGHUP
            if number == signal.SIGTERM and drain:
                os.kill(agent, signal.SIGTERM)  # the agent exits when its node is empty
            else:
                kill_at = kill_at or time.monotonic() + AGENT_SECONDS
                os.kill(agent, signal.SIGINT if drain else signal.SIGTERM)
        elif kill_at is not None and time.monotonic() >= kill_at:
            os.kill(agent, signal.SIGKILL)
        status = _reap(agent)
        if status is not None:
            return status, stop


def _wait_for_stop(*, within: float) -> bool:
    deadline = time.monotonic() + within
    while (left := deadline - time.monotonic()) > 0:
        received = signal.sigtimedwait(WATCHED, left)
        _reap(0)
        if received is not None and received.si_signo in (signal.SIGTERM, signal.SIGINT):
            return True
    return False


def _reap(agent: int) -> int | None:
    """Reap exited processes; return the agent's exit status if it is among them."""
    found: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == agent:
            found = os.waitstatus_to_exitcode(status)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_agents.agent.node_init", description=__doc__)
    parser.add_argument("--data-dir", required=True, help="the agent's data directory")
    parser.add_argument(
        "--grace", type=float, default=45.0, help="seconds for the jobs to stop before they are killed"
    )
    parser.add_argument(
        "--drain", action="store_true", help="on SIGTERM the agent drains the node instead of exiting at once"
    )
    parser.add_argument("agent", nargs="+", help="the agent's command, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
