"""`python -m gpu_agents.agent.node_init --data-dir DIR [--grace SECONDS] -- AGENT COMMAND…`: process 1 of an agent's
container.

A container ends with its process 1, and with it every job. So process 1 is not the agent but this: it starts the
agent, starts it again when it ends (the jobs live on under their supervisors, and the next one adopts them), and reaps
what they leave. SIGHUP restarts the agent. SIGTERM ends the agent, then asks the jobs to stop and gives them the grace
period to write their checkpoints; it must be shorter than the container's own.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
PR_SET_CHILD_SUBREAPER = 36
CANNOT_RUN = 2  # the agent's exit status for a wrong setting: starting it again changes nothing
REVOKED = (
    3  # the agent's exit status once its node was revoked: its jobs have ended, and it may not come back
)
AGENT_SECONDS = 10.0  # for the agent to end; it leaves its jobs alone
CALM_SECONDS = 60.0  # an agent that ran for so long starts again at once
LONGEST_WAIT = 30.0


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # where it is not process 1, for a try
    status = keep(options.agent)
    end_jobs = [sys.executable, "-m", "gpu_agents.agent", "end-jobs", "--data-dir", options.data_dir]
    ended = subprocess.run([*end_jobs, "--grace", str(options.grace)], preexec_fn=_unblock)
    return status or ended.returncode


def keep(command: list[str]) -> int:
    """Run the agent until this process is told to stop, or the agent cannot run at all, or not any more. Its exit
    status."""
    wait, first = 1.0, True
    while True:
        began = time.monotonic()
        agent = subprocess.Popen(command, preexec_fn=_unblock)
        status, stop = _serve(agent.pid)
        if stop or status == REVOKED or (first and status == CANNOT_RUN):
            return 0 if stop else status
        first = False
        wait = 1.0 if time.monotonic() - began >= CALM_SECONDS else min(LONGEST_WAIT, 2 * wait)
        print(
            f"the agent ended with status {status}; its jobs go on, it starts again in {wait:g} s",
            file=sys.stderr,
        )
        if _told_to_stop(within=wait):
            return 0


def _serve(agent: int) -> tuple[int, bool]:
    """Wait for the agent's end, which SIGHUP and SIGTERM bring about. Its status, and whether all is to stop."""
    stop = False
    kill_at: float | None = None
    while True:
        received = signal.sigtimedwait(WATCHED, 0.5 if kill_at else 60.0)
        number = received.si_signo if received is not None else 0
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            stop = stop or number != signal.SIGHUP
            kill_at = kill_at or time.monotonic() + AGENT_SECONDS
            os.kill(agent, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() >= kill_at:
            os.kill(agent, signal.SIGKILL)
        status = _reap(agent)
        if status is not None:
            return status, stop


def _told_to_stop(*, within: float) -> bool:
    deadline = time.monotonic() + within
    while (left := deadline - time.monotonic()) > 0:
        received = signal.sigtimedwait(WATCHED, left)
        _reap(0)
        if received is not None and received.si_signo in (signal.SIGTERM, signal.SIGINT):
            return True
    return False


def _reap(agent: int) -> int | None:
    """Collect every process that has ended; the agent's exit status when it is among them."""
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
    parser.add_argument("agent", nargs="+", help="the agent's command, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
