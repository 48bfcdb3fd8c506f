"""How this node isolates jobs: found once at the agent's start by running a program in a job's view, never assumed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_agents.agent.isolation.uids import NoUid, UidClaims
from gpu_agents.agent.isolation.view import View, aliases, command, is_below, links_of
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from gpu_agents.agent.untrusted import remove_tree
from oolong import cuda_host
from oolong.contracts.agent import JobIsolation
from oolong.contracts.attempt import AttemptFile
from oolong.contracts.user_code import SourceKind
from oolong.sandbox.capabilities import (
    SandboxUnsupported,
    command_for_user_namespaces,
    in_container,
    read_kernel_settings,
)
from oolong.sandbox.runtime_files import find_bubblewrap

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[3]  # holds gpu_agents/, trainers/ and platform/
CODE = tuple(ROOT / name for name in ("platform", "gpu_agents", "trainers"))
PROBE_SECONDS = 60.0
PROBE_TRIES = 5
PROBE_PREFIX = "probe-"
# Of what becomes a job's /tmp. A Python or checkout below the machine's /tmp is mounted below it, and `enter` starts as
# a root without capabilities, who passes through no closed folder of others. Nobody else gets to this one.
TEMPORARY_MODE = 0o711
PROBE = """
import json, os, sys
hidden, needed = json.loads(sys.argv[1])
open("written", "w").close()
closed = []
for top in needed:
    for _, folders, _ in os.walk(top, onerror=lambda error: closed.append(error.filename)):
        folders[:] = [name for name in folders if name != "__pycache__"]
print(json.dumps({"uid": os.getuid(), "pids": sum(name.isdigit() for name in os.listdir("/proc")),
                  "seen": [path for path in hidden if os.path.lexists(path)], "closed": closed}))
"""


class IsolationError(Exception):
    """This node cannot isolate jobs; the message says why."""


@dataclass(frozen=True, kw_only=True)
class NodeIsolation:
    kind: JobIsolation
    data: DataDirectory
    reason: str = ""  # why there is none
    bubblewrap: Path = Path()
    read_only: tuple[Path, ...] = ()  # what every job sees: code, Python environments, what the owner names
    links: tuple[tuple[Path, str], ...] = ()  # from the names of the two Pythons to their files
    model_roots: tuple[str, ...] = ()
    with_gpus: bool = False
    uids: UidClaims | None = None  # set for JobIsolation.UID

    def require_for(self, sources: Collection[str]) -> None:
        """Code of a user inside the trainer runs only where it cannot reach the agent and other attempts."""
        if SourceKind.LOSS in sources and self.kind is JobIsolation.NONE:
            raise IsolationError(
                f"this node does not isolate jobs, so it runs no uploaded loss: {self.reason}"
            )

    def uid_for(self, attempt_directory: Path) -> int | None:
        """The uid of an attempt, claimed the first time; None where its jobs run under the agent's own."""
        if self.uids is None:
            return None
        return self.uid_of(attempt_directory) or self.uids.claim(attempt_directory)

    def uid_of(self, attempt_directory: Path) -> int | None:
        """The uid that an attempt has: its home folder belongs to it."""
        home = attempt_directory / "home"
        owner = home.stat().st_uid if home.exists() else 0
        return owner or None

    def remove_attempt(self, attempt_directory: Path) -> None:
        """Remove all files of an attempt and give back its uid."""
        uid = self.uid_of(attempt_directory) if self.uids is not None else None
        remove_tree(attempt_directory)
        if self.uids is not None and uid is not None:
            self.uids.release(uid, attempt_directory)

    def wrap(self, job: list[str], attempt: AttemptFile, *, directory: Path, temporary: Path) -> list[str]:
        """The command that runs a job of the attempt in its view; the job itself where there is no isolation."""
        if self.kind is JobIsolation.NONE:
            return job
        root = Path(attempt.directory)
        uid = self.uid_of(root)
        if self.uids is not None and uid is None:
            raise IsolationError(f"{root} was prepared without isolation, and has no uid of its own")
        inputs = [attempt.dataset_file, attempt.evaluation_file, attempt.resume_directory]
        return command(
            View(
                bubblewrap=self.bubblewrap,
                python=Path(sys.executable),
                uid=uid if self.uids is not None else None,
                directory=directory,
                read_only=(
                    *self.read_only,
                    root,
                    *(Path(path) for path in inputs if path),
                    *self._model(Path(attempt.model_directory)),
                ),
                writable=(directory, root / "weights", root / "checkpoints", root / "home"),
                temporary=temporary,
                links=self.links,
                with_gpus=self.with_gpus,
            ),
            job,
        )

    def _model(self, directory: Path) -> list[Path]:
        """The model's directory, and the files that it links to below a directory that this node offers."""
        roots = [Path(root).resolve() for root in self.model_roots]
        links = [path.resolve() for path in directory.rglob("*") if path.is_symlink()]
        return [directory, *(path for path in links if path.exists() and is_below(path, roots))]


def detect(settings: AgentSettings, data: DataDirectory) -> NodeIsolation:
    """What this node can do. Logs the reason where it can do nothing."""
    nothing = NodeIsolation(kind=JobIsolation.NONE, data=data)
    if settings.job_isolation == "none":
        return _none(nothing, "the agent was started with --job-isolation none")
    try:
        found = _probed(settings, data)
        if found.uids is not None:
            for attempt in data.attempts.iterdir():
                uid = found.uid_of(attempt)
                if uid is not None:
                    found.uids.keep(uid, attempt)
    except (IsolationError, SandboxUnsupported, NoUid, OSError, subprocess.SubprocessError) as error:
        return _none(nothing, str(error))
    log.info("jobs are isolated: %s", found.kind.value)
    return found


def _probed(settings: AgentSettings, data: DataDirectory) -> NodeIsolation:
    """What a probe has confirmed. One that takes too long on a stalled machine says nothing about it: try again."""
    for number in range(1, PROBE_TRIES + 1):
        try:
            found = _as_root(settings, data) if os.geteuid() == 0 else _as_user(settings, data)
            _probe(found, settings)
            return found
        except subprocess.TimeoutExpired as error:
            log.warning("probe %d of job isolation, of at most %d: %s", number, PROBE_TRIES, error)
    raise IsolationError(
        f"{PROBE_TRIES} probes took over {PROBE_SECONDS:.0f} s each. Restart the agent to probe again"
    )


def _none(nothing: NodeIsolation, reason: str) -> NodeIsolation:
    log.warning(
        "jobs are NOT isolated from this agent and from each other, so runs with a loss of their own are refused: %s",
        reason,
    )
    return NodeIsolation(kind=nothing.kind, data=nothing.data, reason=reason)


def _as_root(settings: AgentSettings, data: DataDirectory) -> NodeIsolation:
    return _found(settings, data, JobIsolation.UID, UidClaims(*settings.job_uids))


def _as_user(settings: AgentSettings, data: DataDirectory) -> NodeIsolation:
    return _found(settings, data, JobIsolation.USERNS, None)


def _found(
    settings: AgentSettings, data: DataDirectory, kind: JobIsolation, uids: UidClaims | None
) -> NodeIsolation:
    read_only = [*CODE, *_prefixes(settings.node_python), *map(Path, settings.job_paths)]
    if settings.device == "cuda":
        given = cuda_host.environment(os.environ)
        folders = [given.get("CUDA_HOME", ""), *given.get("LD_LIBRARY_PATH", "").split(":")]
        read_only += [Path(folder) for folder in folders if folder]
    shown = {path for folder in read_only if folder.exists() for path in aliases(folder)}
    for path in aliases(data.root):
        if is_below(path, shown):
            raise IsolationError(
                f"the data directory {path} lies in a folder that jobs can read; use another --data-dir"
            )
    return NodeIsolation(
        kind=kind,
        data=data,
        bubblewrap=find_bubblewrap(),
        read_only=tuple(sorted(shown)),
        links=tuple({**links_of(Path(settings.node_python)), **links_of(Path(sys.executable))}.items()),
        model_roots=settings.model_roots,
        with_gpus=settings.device == "cuda",
        uids=uids,
    )


def _prefixes(node_python: str) -> list[Path]:
    """Folders of the two Python environments, and of the Pythons that they were made from."""
    said = subprocess.run(
        [node_python, "-I", "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"],
        capture_output=True, text=True, timeout=PROBE_SECONDS, check=True,
    )  # fmt: skip
    folders = {Path(folder) for folder in (*said.stdout.splitlines(), sys.prefix, sys.base_prefix)}
    return sorted(folder for folder in folders if folder != Path("/"))


def _probe(isolation: NodeIsolation, settings: AgentSettings) -> None:
    """Run a program as a job would be run. Raise IsolationError unless it is cut off and can do its work."""
    for leftover in isolation.data.root.glob(f"{PROBE_PREFIX}*"):
        shutil.rmtree(leftover)  # of an agent that was killed; its uid is free with it
    folder = Path(tempfile.mkdtemp(prefix=PROBE_PREFIX, dir=isolation.data.root))
    uid = None
    try:
        work, temporary = folder / "work", folder / "tmp"
        uid = isolation.uids.claim(folder) if isolation.uids is not None else None
        for path in (work, temporary):
            path.mkdir(mode=0o700)
            if uid is not None:
                os.chown(path, uid, uid)
        temporary.chmod(TEMPORARY_MODE)  # whatever the umask
        hidden = [str(path) for path in (isolation.data.spool, isolation.data.cache, isolation.data.attempts)]
        view = View(
            bubblewrap=isolation.bubblewrap, python=Path(sys.executable), uid=uid, directory=work,
            read_only=isolation.read_only, writable=(work,), temporary=temporary, links=isolation.links,
            with_gpus=isolation.with_gpus,
        )  # fmt: skip
        needed = [str(path) for path in (*CODE, Path(sys.prefix, "bin"))]
        asked = json.dumps([hidden, needed])
        _check_probe(command(view, [settings.node_python, "-I", "-c", PROBE, asked]), uid)
    finally:
        shutil.rmtree(folder)
        if isolation.uids is not None and uid is not None:
            isolation.uids.release(uid, folder)


def _way_out() -> str:
    if in_container():
        options = ("seccomp", "apparmor", "systempaths")
        return f"docker run {' '.join(f'--security-opt {name}=unconfined' for name in options)} …"
    return command_for_user_namespaces(read_kernel_settings(), in_container=False)


def _check_probe(words: Sequence[str], uid: int | None) -> None:
    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    )  # fmt: skip
    if ended.returncode != 0:
        said = ended.stderr.strip().rpartition("\n")[2] or f"it ended with {ended.returncode}"
        raise IsolationError(f"no isolated process can be started: {said}. Type: {_way_out()}")
    found = json.loads(ended.stdout)
    wanted = os.geteuid() if uid is None else uid
    if found["uid"] != wanted or found["seen"] or found["pids"] > 3:
        raise IsolationError(f"an isolated process is not cut off: {found}")
    if found["closed"]:
        raise IsolationError(
            f"users of jobs cannot read {found['closed'][0]}; it was made under a strict umask. Type: chmod -R go+rX "
            f"{ROOT} {sys.prefix}"
        )
