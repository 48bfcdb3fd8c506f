"""The agent's settings, and the layout of its data directory."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpu_agents.agent.isolation.uids import FIRST, LAST
from gpu_agents.agent.provider import NO_ALLOCATION, Allocation
from oolong.public_address import is_loopback


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    server: str  # URL of the control plane, without /api/v1
    data_directory: Path
    node_python: str  # python of the node environment (torch, sglang): runs trainers and engines
    name: str  # shown in the pool
    device: str = "cpu"  # cpu | cuda
    slots: int = 0  # CPU slots; 0: one per core
    slots_per_gpu: int = 1  # above 1, trainer and engines of a run may share a GPU
    join_token: str = ""  # single use; needed until node.json exists
    cache_limit_bytes: int = 50 * 1024**3
    kept_attempts: int = 20  # ended attempts whose job directories stay for inspection
    hub_hosts: tuple[str, ...] = ()  # internal hosts that a hub may redirect to
    model_roots: tuple[str, ...] = ()  # directories whose models projects may register by their paths
    job_isolation: str = "auto"  # auto: the strongest supported | none
    job_uids: tuple[int, int] = (FIRST, LAST)  # one per attempt, if the agent is root
    job_paths: tuple[str, ...] = ()  # that isolated jobs may read besides the system, Oolong and their inputs
    peer_address: str = ""  # where other nodes reach this one's jobs; "": loopback only
    peer_network: str = "default"  # nodes of a pool with the same name reach each other
    allocation: Allocation = NO_ALLOCATION  # of what has started the agent
    idle_seconds: float | None = None  # without jobs, after which the node leaves its pool; None: it stays
    long_poll_seconds: float = 8.0  # of heartbeats


@dataclass(frozen=True)
class DataDirectory:
    """The paths of the agent. It writes nowhere else."""

    root: Path

    def create(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (self.spool, self.uploads, self.cache, self.attempts, self.supervisors, self.home):
            directory.mkdir(exist_ok=True, mode=0o700)

    @property
    def node(self) -> Path:
        """Credential and node id, mode 0600."""
        return self.root / "node.json"

    @property
    def contact(self) -> Path:
        """Touched at each successful heartbeat; supervisors watch it."""
        return self.root / "contact"

    @property
    def spool(self) -> Path:
        """One record per job until the server has acknowledged its end."""
        return self.root / "spool"

    @property
    def desired(self) -> Path:
        """The last desired state, for a restart while the server is unavailable."""
        return self.root / "desired.json"

    @property
    def uploads(self) -> Path:
        """One record per checkpoint upload."""
        return self.root / "uploads"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    @property
    def imports(self) -> Path:
        """Model imports in progress."""
        return self.root / "imports"

    @property
    def model_checks(self) -> Path:
        """Model checks in progress."""
        return self.root / "model-checks"

    @property
    def supervisors(self) -> Path:
        return self.root / "supervisors"

    @property
    def home(self) -> Path:
        """HOME of the processes that import and check models. Each attempt has its own."""
        return self.root / "home"

    @property
    def lock(self) -> Path:
        """The exclusive lock of this directory."""
        return self.root / "agent.lock"

    def attempt(self, attempt_id: str) -> Path:
        return self.attempts / _plain(attempt_id)

    def job(self, attempt_id: str, name: str, incarnation: int) -> Path:
        return self.attempt(attempt_id) / "jobs" / f"{_plain(name)}-{incarnation}"

    def supervision(self, attempt_id: str, name: str, incarnation: int) -> Path:
        """Files of a job's supervisor: order, output, exit status. The job cannot change them."""
        return self.attempt(attempt_id) / "supervision" / f"{_plain(name)}-{incarnation}"

    def model_import(self, import_id: str) -> Path:
        return self.imports / _plain(import_id)

    def model_check(self, check_id: str) -> Path:
        return self.model_checks / _plain(check_id)

    def job_record(self, job_id: str) -> Path:
        return self.spool / f"{_plain(job_id)}.json"

    def supervisor(self, job_id: str) -> Path:
        return self.supervisors / f"{_plain(job_id)}.json"


def check_server_url(url: str) -> str:
    """Return the URL without a trailing slash. Plain HTTP is rejected except for loopback."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"server {url!r} is not an http(s) URL; expected something like https://oolong.example.org"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(
            f"server {url!r}: plain HTTP would expose the node's credential on the network; use https:// "
            "(plain HTTP is accepted only for this machine, 127.0.0.1 or localhost)"
        )
    return url.rstrip("/")


def check_peer_address(address: str) -> str:
    """An address of this machine, on which its jobs can listen. Raises ValueError for any other one."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError as error:
        raise ValueError(
            f"peer address {address!r} is no IP address: name one of this machine's, as in 10.0.0.5"
        ) from error
    if ip.is_unspecified or ip.is_multicast:
        raise ValueError(
            f"peer address {address}: name the one address at which other nodes reach this machine"
        )
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((str(ip), 0))
        except OSError as error:
            raise ValueError(
                f"peer address {ip} is no address of this machine ({error.strerror}): `ip -brief address` lists them"
            ) from error
    return str(ip)


def _plain(name: str) -> str:
    """Check that a name from the network is a single path component."""
    if not name or name.startswith(".") or not all(letter.isalnum() or letter in "._-" for letter in name):
        raise ValueError(f"{name!r} cannot be a file name: letters, digits, '.', '_' and '-' only")
    return name
