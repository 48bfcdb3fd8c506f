"""Create the two Python environments: the checkout's `.venv` and the node environment that clones share."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_stack.errors import StackError
from local_stack.files import file_lock, read_json, tail, write_json
from local_stack.network import ATTEMPTS, UNREACHABLE, is_connection_error
from local_stack.paths import Paths

Echo = Callable[[str], None]
READY = ".oolong-ready.json"
# With less free disk space, pip runs without its cache.
PIP_CACHE_MIN_FREE_BYTES = 16 * 10**9
# pip's messages. It reports a conflict instead where its own configuration constrains the missing package too.
NO_MATCHING_FILE = r"No matching distribution found|Could not find a version|ResolutionImpossible"


@dataclass(frozen=True)
class Install:
    """One pip call: a list of pinned packages with hashes, including all dependencies."""

    requirements: Path
    alternatives: tuple[Install, ...] = ()  # installed if the package index lacks a file of this list

    def arguments(self) -> list[str]:
        words = ["install", "--no-input", "--progress-bar", "off", "--require-hashes", "--no-deps"]
        return [*words, "--requirement", str(self.requirements)]

    def files(self) -> list[Path]:
        return [self.requirements, *(file for other in self.alternatives for file in other.files())]


@dataclass(frozen=True)
class Environment:
    """An environment and its package lists. Environments with the same `key` have the same packages."""

    name: str
    path: Path
    installs: tuple[Install, ...]
    size: str  # measured; shown before the download
    needs_cuda: bool = False  # torch must be a CUDA build

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def key(self) -> str:
        return environment_key(self.installs)

    def is_ready(self) -> bool:
        """Whether it was created completely from the current lists and its Python still exists."""
        marker = read_json(self.path / READY)
        return marker.get("key") == self.key and os.access(self.python, os.X_OK)


def environment_key(installs: tuple[Install, ...]) -> str:
    """Hash of the package lists and the Python version."""
    digest = hashlib.sha256(f"{sys.version_info[0]}.{sys.version_info[1]}".encode())
    for install in installs:
        for file in install.files():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def platform_environment(paths: Paths) -> Environment:
    """Environment of the control plane, the agent, the CLI and the tests: everything but torch."""
    return Environment(
        name="platform",
        path=paths.venv,
        installs=(Install(paths.constraints / "platform.txt"),),
        size="about 0.35 GB to download, 1.0 GB on disk",
    )


def node_environment(paths: Paths, *, device: str = "cpu") -> Environment:
    """Environment of trainer and engine. `device` is `cpu` or `cuda`; only `cuda` has SGLang's CUDA packages."""
    lists = paths.constraints
    if device == "cuda":
        installs: tuple[Install, ...] = (
            Install(lists / "node-cuda.txt"),
            Install(lists / "node-torch-cuda.txt"),
        )
        size = "about 4 GB to download, 9 GB on disk"
    else:
        public = (Install(lists / "node-torch-cuda.txt"), Install(lists / "node-torch-libraries.txt"))
        torch = Install(lists / "node-torch-cpu.txt", alternatives=public)
        installs = (Install(lists / "node.txt"), torch, Install(lists / "node-nodeps.txt"))
        size = "about 0.6 GB to download, 2.5 GB on disk; with torch's CUDA build 3.5 GB and 6 GB"
    key = environment_key(installs)
    return Environment(
        name=f"node ({device})",
        path=paths.environments / f"node-{device}-{key}",
        installs=installs,
        size=size,
        needs_cuda=device == "cuda",
    )


def ensure(environment: Environment, *, paths: Paths, echo: Echo) -> None:
    """Create the environment unless it is ready. A second call takes milliseconds.

    It is built in place, because a virtual environment cannot be moved; the marker is written last. An
    interrupted build resumes: what pip has already downloaded and installed is reused.
    """
    if environment.is_ready():
        return
    lock = environment.path.with_name(f"{environment.path.name}.lock")
    if environment.path == paths.venv:
        lock = paths.run / "venv.lock"
    log = paths.logs / f"setup-{environment.name.split()[0]}.log"
    with file_lock(lock, on_wait=lambda: echo(f"  Another process is creating {environment.path}; waiting.")):
        if environment.is_ready():
            return
        began = time.monotonic()
        echo(f"Creating the {environment.name} environment in {environment.path}: {environment.size}.")
        echo(f"  Log: {log}")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        _make_venv(environment.path)
        for install in environment.installs:
            _pip(environment, install, log=log, echo=echo)
        if environment.needs_cuda:
            require_cuda_torch(environment)
        if environment.path == paths.venv:
            _install_checkout(environment, paths=paths, log=log)
        write_json(environment.path / READY, {"key": environment.key, "made_in_seconds": _elapsed(began)})
        echo(f"  The {environment.name} environment is ready after {_elapsed(began):.0f} s.")


def torch_cuda_version(python: Path) -> str:
    """The CUDA version of the installed torch; "" for a CPU-only build."""
    script = (
        "import importlib.util, pathlib, runpy; "
        "file = pathlib.Path(importlib.util.find_spec('torch').origin).with_name('version.py'); "
        "print(runpy.run_path(str(file)).get('cuda') or '')"
    )
    done = subprocess.run([str(python), "-c", script], capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(f"torch is not installed correctly: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def require_cuda_torch(environment: Environment) -> None:
    """Raise StackError for a CPU-only torch, which leaves the GPU unused or fails at the first kernel."""
    if not torch_cuda_version(environment.python):
        raise StackError(
            f"torch in {environment.path} is a CPU-only build, and the device is cuda. Remove that folder, remove "
            "the source of the CPU-only wheel from pip's configuration (`python3 -m pip config list`: find-links, "
            "extra-index-url), and run the command again."
        )


def _elapsed(began: float) -> float:
    return round(time.monotonic() - began, 1)


def _make_venv(path: Path) -> None:
    """Create the virtual environment unless an earlier attempt left a usable one."""
    python = path / "bin" / "python"
    if python.exists():
        asked = [str(python), "-c", "import pip, sys; print(sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == str(tuple(sys.version_info[:2])):
            return
    if path.exists():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    base = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run([base, "-m", "venv", str(path)], capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(
            f"{base} -m venv {path} failed:\n{(done.stdout + done.stderr).strip()[-1500:]}\n"
            "On Debian: apt-get install python3-venv"
        )


def _pip(environment: Environment, install: Install, *, log: Path, echo: Echo) -> None:
    wanted = len(re.findall(r"^[A-Za-z0-9]", install.requirements.read_text(), flags=re.MULTILINE))
    began = time.monotonic()
    for attempt in range(1, ATTEMPTS + 1):
        before = log.stat().st_size
        if _run_pip(environment, install.arguments(), log=log, wanted=wanted) == 0:
            break
        output = log.read_bytes()[before:].decode(errors="replace")
        broke = is_connection_error(output)
        if install.alternatives and not broke and re.search(NO_MATCHING_FILE, output):
            for other in install.alternatives:
                _pip(environment, other, log=log, echo=echo)
            return
        if attempt == ATTEMPTS or not broke:
            raise StackError(explain_pip_failure(log, what=install.requirements.name))
        echo(f"  The connection to the package index broke; resuming (attempt {attempt + 1} of {ATTEMPTS}).")
    echo(f"  {install.requirements.name}: {wanted} package(s) in {time.monotonic() - began:.0f} s")


def _install_checkout(environment: Environment, *, paths: Paths, log: Path) -> None:
    words = ["install", "--no-deps", "--no-build-isolation", "--no-index", "--editable", str(paths.root)]
    if _run_pip(environment, words, log=log, wanted=0) != 0:
        raise StackError(explain_pip_failure(log, what="the checkout itself"))


def _run_pip(environment: Environment, words: list[str], *, log: Path, wanted: int) -> int:
    """Run pip with its output in the log. On a terminal, print the progress."""
    # Large downloads must not fill a /tmp that is in memory.
    scratch = environment.path.with_name(f"{environment.path.name}.tmp")
    scratch.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}
    variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    if shutil.disk_usage(scratch).free < PIP_CACHE_MIN_FREE_BYTES:
        variables["PIP_NO_CACHE_DIR"] = "1"
    for name in (
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_REQUIRE_VIRTUALENV",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_USER",
    ):
        variables.pop(name, None)
    command = [str(environment.python), "-m", "pip", *words]
    with log.open("a") as stream:
        stream.write("$ " + " ".join(command) + "\n")
        stream.flush()
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=variables)
        stopped = threading.Event()
        if sys.stdout.isatty() and wanted:
            threading.Thread(target=_print_progress, args=(log, wanted, stopped), daemon=True).start()
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            stopped.set()
            shutil.rmtree(scratch, ignore_errors=True)


def _print_progress(log: Path, wanted: int, stopped: threading.Event) -> None:
    while not stopped.wait(0.5):
        text = log.read_text(errors="replace").rpartition("\n$ ")[2]
        count = len(re.findall(r"^(?:Collecting|Requirement already satisfied)", text, flags=re.MULTILINE))
        state = "unpacking" if "Installing collected packages" in text else "downloading"
        print(f"\r  {min(count, wanted)}/{wanted} packages, {state} …\x1b[K", end="", flush=True)
    print("\r\x1b[K", end="", flush=True)


_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device",
        "The disk is full: free space, or set OOLONG_HOME to a folder on another disk.",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "A file differs from the pinned one: the package index serves other files than the public one. "
        "Set another index (PIP_INDEX_URL), remove additional sources (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL), "
        "or clear pip's cache: .venv/bin/python -m pip cache purge",
    ),
    (
        UNREACHABLE + "|SSLError|CERTIFICATE_VERIFY_FAILED",
        "The package index could not be reached. Check the network (HTTPS_PROXY, PIP_CERT), then run the "
        "command again; it resumes. To use a mirror, set PIP_INDEX_URL.",
    ),
    (
        NO_MATCHING_FILE,
        "The package index has no such file for this machine, or a constraint forbids it. Check whether pip's "
        "configuration names a mirror that lacks it or a constraints file: `python3 -m pip config list`.",
    ),
    (r"Permission denied", "A folder is not writable for this user. Did another user run setup first?"),
    (
        r"MemoryError|Killed",
        "The machine ran out of memory: close other programs and run the command again.",
    ),
)


def explain_pip_failure(log: Path, *, what: str) -> str:
    """Explain a pip failure: its last error messages and how to fix it."""
    text = tail(log, lines=400)
    errors = [line for line in text.splitlines() if line.startswith(("ERROR", "error", "WARNING: Retrying"))]
    advice = next(
        (fix for pattern, fix in _ADVICE if re.search(pattern, text)), "The log has the full output."
    )
    output = "\n".join(errors[-4:]) or "\n".join(text.splitlines()[-6:])
    return f"pip could not install {what}.\n{output}\n{advice}\nLog: {log}"
