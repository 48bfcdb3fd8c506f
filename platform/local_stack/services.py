"""The services of a stack, in start order."""

from __future__ import annotations

import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_stack.configuration import StackConfiguration, build_broker, build_cluster, child_environment
from local_stack.paths import Paths
from local_stack.postgres import RunAs

CONTROL_PLANE_ONLY = frozenset(
    {
        "SECRET_KEY",
        "DATABASE_URL",
        "REDIS_URL",
        "OOLONG_METRICS_TOKEN",
        "OOLONG_SECRETS_KEYS",
        "OOLONG_OIDC_CLIENT_SECRET",
        "STORAGE_URL",
        "OOLONG_DATA_DIR",
        "PROMETHEUS_MULTIPROC_DIR",
        "DJANGO_SETTINGS_MODULE",
    }
)

# Start order: stores, migrations, control plane, then the agent, which needs the API.
STORES, CONTROL_PLANE, NODE = "stores", "control plane", "node"


@dataclass(frozen=True)
class Service:
    """One long-running process: how to start it, check it and stop it."""

    name: str
    stage: str
    argv: list[str]
    environment: dict[str, str] = field(repr=False)
    directory: Path
    is_ready: Callable[[], bool]
    ready_timeout_seconds: float = 60.0
    before_start: Callable[[], None] = lambda: None
    run_as: RunAs | None = None
    stop_signal: int = signal.SIGTERM
    grace_seconds: float = 5.0  # between the stop signal and SIGKILL


def build_services(
    paths: Paths, configuration: StackConfiguration, variables: Mapping[str, str]
) -> list[Service]:
    """Build all services of the configuration."""
    python = str(paths.venv_python)
    environment = child_environment(paths, variables)
    services: list[Service] = []
    if configuration.embedded_postgres:
        cluster = build_cluster(paths, configuration)

        def before_postgres() -> None:
            cluster.initialize()
            cluster.remove_stale_lock()

        services.append(
            Service(
                name="postgres",
                stage=STORES,
                argv=cluster.argv(),
                environment=cluster.environment(),
                directory=cluster.data,
                is_ready=cluster.is_ready,
                before_start=before_postgres,
                run_as=cluster.run_as,
                stop_signal=signal.SIGINT,  # "fast" shutdown: closes connections and writes the log
            )
        )
    if configuration.embedded_valkey:
        broker = build_broker(paths, configuration)
        services.append(
            Service(
                name="valkey",
                stage=STORES,
                argv=broker.argv(),
                environment={"PATH": "/usr/bin:/bin"},
                directory=broker.data,
                is_ready=broker.is_ready,
                before_start=broker.prepare,
                run_as=broker.run_as,
            )
        )
    # Any web process answers /metrics for all of them.
    metrics = paths.run / "metrics"
    shared = {"PROMETHEUS_MULTIPROC_DIR": str(metrics)} if configuration.web_processes > 1 else {}
    web = ["-m", "uvicorn", "control_plane.asgi:application", "--host", "127.0.0.1"]
    web += ["--port", str(configuration.ports["web"]), "--lifespan", "off", "--no-access-log"]
    web += ["--no-proxy-headers"]  # common.forwarded believes named proxies alone
    web += ["--timeout-graceful-shutdown", "2"]  # browser streams never close on their own
    if configuration.web_processes > 1:
        web += ["--workers", str(configuration.web_processes)]
    celery = ["-m", "celery", "--app", "control_plane", "--workdir", str(paths.root / "platform")]
    alone = ["--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
    worker = [*celery, "worker", "--queues", "celery", "--concurrency", str(configuration.worker_processes)]
    worker += [*alone, "--hostname", "oolong@localhost"]
    # Webhook receivers may be slow, so deliveries have their own worker with a single thread.
    webhooks = [*celery, "worker", "--queues", "webhooks", "--pool", "solo", *alone]
    webhooks += ["--hostname", "webhooks@localhost"]
    beat = [*celery, "beat", "--loglevel", "WARNING", "--pidfile", ""]
    beat += ["--schedule", str(paths.run / "beat-schedule")]
    for name, arguments, ready in (
        ("web", web, lambda: responds_ok(configuration.url + "/api/v1/health")),
        ("worker", worker, always_ready),
        ("webhooks", webhooks, always_ready),
        ("beat", beat, always_ready),
    ):
        services.append(
            Service(
                name=name,
                stage=CONTROL_PLANE,
                argv=[python, *arguments],
                environment={**environment, "OOLONG_SERVICE": name, **(shared if name == "web" else {})},
                directory=paths.root,
                before_start=(lambda: _empty_folder(metrics)) if name == "web" else lambda: None,
                is_ready=ready,
                grace_seconds=3.0,
            )
        )
    if configuration.agent:
        services.append(
            Service(
                name="agent",
                stage=NODE,
                argv=[python, *agent_arguments(paths, configuration)],
                environment=agent_environment(environment),
                directory=paths.root,
                is_ready=lambda: (paths.agent_data / "node.json").exists(),
                grace_seconds=4.0,
            )
        )
    return services


def agent_arguments(paths: Paths, configuration: StackConfiguration) -> list[str]:
    words = ["-m", "gpu_agents.agent", "run", "--server", configuration.url]
    words += ["--data-dir", str(paths.agent_data), "--join-token-file", str(join_token_file(paths))]
    words += ["--name", socket.gethostname(), "--device", configuration.device]
    if configuration.device == "cpu":
        words += ["--slots", str(configuration.slots)]
    else:
        words += ["--slots-per-gpu", str(configuration.slots_per_gpu)]
    return [*words, "--provider", "local", "--node-python", configuration.node_python]


def join_token_file(paths: Paths) -> Path:
    return paths.agent_data / "enroll-token"


def agent_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove the control plane's secrets: the agent authenticates with its own credential."""
    return {name: value for name, value in environment.items() if name not in CONTROL_PLANE_ONLY}


def _empty_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def always_ready() -> bool:
    return True


def responds_ok(url: str) -> bool:
    """Whether GET returns 200. Ignores proxy variables because the URL is on the loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
