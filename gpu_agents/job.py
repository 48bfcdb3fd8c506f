"""Entry and exit of every job: read its files, set up logging, write the result."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from oolong.contracts.attempt import (
    AttemptFile,
    JobFile,
    JobResult,
    PeerListenerFile,
    read_attempt,
    read_job,
    write_result,
)
from oolong.contracts.lifecycle import EndReason
from oolong.system.pinned_tls import server_context
from oolong.system.rpc import RpcServer

SUCCESSFUL = frozenset({EndReason.COMPLETED, EndReason.STOPPED_BY_USER})


@dataclass(frozen=True, kw_only=True)
class Job:
    attempt: AttemptFile
    job: JobFile
    directory: Path
    began_at: float  # unix seconds; start of the attempt, zero of the time axis of all its jobs

    def seconds_since_start(self, now: float) -> int:
        return max(int(now - self.began_at), 0)


def read_arguments(program: str) -> Job:
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--attempt", type=Path, required=True, help="attempt.json")
    parser.add_argument("--job", type=Path, required=True, help="job directory with job.json")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    return Job(
        attempt=read_attempt(arguments.attempt),
        job=read_job(arguments.job),
        directory=arguments.job,
        began_at=arguments.attempt.stat().st_mtime,
    )


def finish_job(job: Job, reason: EndReason, message: str = "") -> int:
    """Write the job's result; return its exit status."""
    logging.getLogger(__name__).info("%s ends: %s %s", job.job.name, reason, message)
    write_result(job.directory, JobResult(reason=reason, message=message))
    return 0 if reason in SUCCESSFUL else 1


def stop_event() -> asyncio.Event:
    """Set by SIGTERM or SIGINT."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event


async def listen_for_peers(rpc: RpcServer, listener: PeerListenerFile, *, port: int) -> None:
    """Serve engines on other nodes too: on the node's peer address, with TLS."""
    await rpc.listen_also(listener.address, port, server_context(listener.certificate, listener.private_key))


def address_of(url: str) -> tuple[str, int]:
    """Return the host and port of a URL in attempt.json."""
    parts = urlsplit(url)
    if not parts.hostname or not parts.port:
        raise ValueError(f"{url!r} in attempt.json has no host and port")
    return parts.hostname, parts.port
