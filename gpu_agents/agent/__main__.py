"""`python -m gpu_agents.agent run|terminate-jobs`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import re
import signal
import socket
import sys
from pathlib import Path, PurePosixPath

from gpu_agents.agent.agent import Agent, NodeLeft
from gpu_agents.agent.api import ServerUnavailable
from gpu_agents.agent.heartbeat import NodeRevoked
from gpu_agents.agent.identity import EnrollmentError, enroll
from gpu_agents.agent.inventory import InventoryError
from gpu_agents.agent.isolation.uids import FIRST, LAST
from gpu_agents.agent.provider import detect
from gpu_agents.agent.settings import AgentSettings, DataDirectory, check_peer_address, check_server_url
from gpu_agents.agent.terminate_jobs import AgentIsRunning, lock_data_directory, terminate_jobs
from oolong.contracts.agent import Provider
from oolong.contracts.model_paths import faults_of_path
from oolong.logs import formatter
from oolong.system.backoff import Backoff
from oolong.tracing import TracingUnavailable, start_tracing, stop_tracing
from oolong.variables import report_unknown

log = logging.getLogger("gpu_agents.agent")

TERMINATE_GRACE_SECONDS = 10.0
REVOKED_STATUS = 3  # also in node_init
LEFT_STATUS = 4  # also in node_init
MAX_SLOTS_PER_GPU = 8
PEER_NETWORK = "default"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    _log_to_stderr()
    report_unknown(os.environ)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    data = DataDirectory(options.data_dir.resolve())
    data.create()
    try:
        with lock_data_directory(data):
            if options.command == "terminate-jobs":
                return _terminate_jobs(data, options.grace)
            settings = _settings(options)
            start_tracing("oolong-agent")
            status = asyncio.run(_run(settings))
            stop_tracing()
            return status
    except NodeRevoked as revoked:
        print(
            f"error: {revoked}. The node's jobs were terminated, and {data.node} was removed", file=sys.stderr
        )
        return REVOKED_STATUS
    except NodeLeft as left:
        print(f"the node has left its pool: {left}", file=sys.stderr)
        return LEFT_STATUS
    except (AgentIsRunning, EnrollmentError, InventoryError, TracingUnavailable, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter("agent", os.environ.get("OOLONG_LOG_FORMAT", "")))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def _run(settings: AgentSettings) -> int:
    leave = asyncio.Event()  # the provider ends the allocation
    serving_task = asyncio.create_task(_serve(settings, leave))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, serving_task.cancel)
    provider_kills = settings.allocation.kill_seconds > 0
    loop.add_signal_handler(signal.SIGTERM, leave.set if provider_kills else serving_task.cancel)
    try:
        await serving_task
    except asyncio.CancelledError:
        log.info("the agent exits")
    return 0


async def _serve(settings: AgentSettings, leave: asyncio.Event) -> None:
    backoff = Backoff(initial=0.5, maximum=10.0)
    while not leave.is_set():
        try:
            node = await enroll(settings)
            break
        except ServerUnavailable as error:
            wait = backoff.failed(error.retry_after)
            log.warning("enrollment failed, retrying in %.1f s: %s", wait, error)
            await asyncio.sleep(wait)
    else:
        return
    await Agent(settings, node, leave=leave).run()


def _terminate_jobs(data: DataDirectory, grace_seconds: float) -> int:
    terminated = terminate_jobs(data, grace_seconds=grace_seconds)
    print(f"jobs terminated: {terminated.stopped} stopped, {terminated.killed} killed", file=sys.stderr)
    return 0


def _settings(options: argparse.Namespace) -> AgentSettings:
    token = options.join_token or ""
    if options.join_token_file and not DataDirectory(options.data_dir.resolve()).node.exists():
        token = options.join_token_file.read_text().strip()
    if options.peer_network and not options.peer_address:
        raise ValueError(f"--peer-network {options.peer_network} has no effect without --peer-address")
    return AgentSettings(
        server=check_server_url(options.server),
        data_directory=options.data_dir.resolve(),
        node_python=options.node_python,
        name=options.name,
        device=options.device,
        slots=options.slots,
        slots_per_gpu=options.slots_per_gpu,
        join_token=token,
        cache_limit_bytes=int(options.cache_limit_gb * 1024**3),
        hub_hosts=tuple(options.hub_host),
        model_roots=tuple(options.model_root),
        job_isolation=options.job_isolation,
        job_uids=options.job_uids,
        job_paths=tuple(options.job_path),
        peer_address=check_peer_address(options.peer_address) if options.peer_address else "",
        peer_network=options.peer_network or PEER_NETWORK,
        allocation=detect(options.provider),
        idle_seconds=options.idle_minutes * 60 if options.idle_minutes is not None else None,
    )


def _model_root(text: str) -> str:
    if fault := faults_of_path(text):
        raise argparse.ArgumentTypeError(f"{text!r}: {fault}")
    return str(PurePosixPath(text))


def _peer_network(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,60}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: at most 60 letters, digits, '.', '_' and '-'")
    return text


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return minutes


def _uid_range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) < 2**32 - 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST, as in {FIRST}-{LAST}")
    return int(first), int(last)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpu_agents.agent", description="The GPU agent of one node."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="run jobs of a control plane on this machine's slots")
    run.add_argument("--server", required=True, help="URL of the control plane")
    run.add_argument(
        "--data-dir", type=Path, required=True, help="directory for the node's state, cache and attempts"
    )
    run.add_argument("--node-python", required=True, help="python of the node environment (torch, sglang)")
    token = run.add_mutually_exclusive_group()
    token.add_argument("--join-token", help="single-use join token; needed the first time only")
    token.add_argument("--join-token-file", type=Path, help="file that contains it")
    run.add_argument(
        "--name", default=socket.gethostname(), help="name of the node in the pool (default: host name)"
    )
    run.add_argument("--slots", type=int, default=0, help="CPU slots to offer (default: one per core)")
    run.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    run.add_argument(
        "--slots-per-gpu", type=int, default=1, choices=range(1, MAX_SLOTS_PER_GPU + 1), metavar="N",
        help="slots on each GPU; with 2, one GPU serves a trainer and an engine (default: 1)",
    )  # fmt: skip
    run.add_argument("--cache-limit-gb", type=float, default=50.0, help="size limit of the artifact cache")
    run.add_argument(
        "--model-root", action="append", default=[], metavar="DIRECTORY", type=_model_root,
        help="offer the models below this directory to projects, by their paths; may be repeated",
    )  # fmt: skip
    run.add_argument(
        "--hub-host", action="append", default=[], metavar="HOST",
        help="an internal host that a hub may redirect downloads to; may be repeated; other hosts must be public",
    )  # fmt: skip
    run.add_argument(
        "--job-isolation", choices=("auto", "none"), default="auto",
        help="auto: the strongest isolation that works; none: run jobs as the agent's user, without uploaded losses",
    )  # fmt: skip
    run.add_argument(
        "--job-uids", type=_uid_range, default=(FIRST, LAST), metavar="FIRST-LAST",
        help=f"as root: the uids that attempts get, one each (default: {FIRST}-{LAST})",
    )  # fmt: skip
    run.add_argument(
        "--job-path",
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="a directory that isolated jobs may read besides the system, Oolong and their inputs; may be repeated",
    )

    run.add_argument(
        "--peer-address", default="", metavar="IP",
        help="address of this machine at which other nodes of the pool reach its jobs, which then listen there with "
        "TLS, so that a run can have engines on several nodes (default: jobs listen on loopback only)",
    )  # fmt: skip
    run.add_argument(
        "--peer-network", metavar="NAME", type=_peer_network,
        help=f"nodes of a pool with the same name here reach each other (default: {PEER_NETWORK})",
    )  # fmt: skip

    run.add_argument(
        "--provider", choices=("auto", *Provider), default="auto",
        help="what has started the agent: shown in the pool, and with slurm the node is drained before its Slurm job "
        "ends or when it gets SIGTERM; auto: found in the environment (default)",
    )  # fmt: skip
    run.add_argument(
        "--idle-minutes", type=_minutes, metavar="N",
        help="leave the pool and exit after so many minutes without jobs (default: stay)",
    )  # fmt: skip

    end = commands.add_parser("terminate-jobs", help="terminate every job of this data directory")
    end.add_argument("--data-dir", type=Path, required=True)
    end.add_argument(
        "--grace", type=float, default=TERMINATE_GRACE_SECONDS, help="seconds before jobs are killed"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
