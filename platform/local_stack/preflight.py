"""What the machine must have: every check runs, and all that fail are reported at once with a way out."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_stack.errors import StackError
from local_stack.files import format_bytes
from local_stack.paths import Paths
from oolong import cuda_host
from oolong.sandbox.capabilities import command_for_user_namespaces, in_container, read_kernel_settings
from oolong.sandbox.kernel import WITHOUT_SANDBOX, namespace_error

GIGABYTE = 10**9
# A machine sold with 8 GB shows less: firmware and kernel keep some. Measured need of the demo is below this.
MIN_MEMORY_BYTES = int(7.2 * GIGABYTE)
RECOMMENDED_FREE_MEMORY_BYTES = 4 * GIGABYTE
MIN_DISK_BYTES = 10 * GIGABYTE
# Of the pinned CUDA packages 4 GB lie beside the 9 GB that they unpack to, while pip installs them.
MIN_DISK_CUDA_BYTES = 16 * GIGABYTE
MIN_DISK_AFTER_SETUP_BYTES = 2 * GIGABYTE
MIN_GLIBC = (2, 34)  # SGLang's wheel is built for manylinux_2_34


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one check."""

    name: str
    ok: bool
    detail: str
    way_out: str = ""  # the line to type when not ok


@dataclass(frozen=True)
class Machine:
    """Facts about the machine, read once, so that the decisions are testable without it."""

    python: tuple[int, int]
    has_venv: bool
    system: str
    architecture: str
    glibc: tuple[int, int] | None
    memory_total_bytes: int
    memory_available_bytes: int
    root_path: str
    disk_free_bytes: dict[str, int]  # by what is kept there
    disk_no_exec: bool
    environments_ready: bool
    loopback_error: str  # empty when a port could be opened
    shared_memory_writable: bool
    has_lscpu: bool
    is_root: bool
    has_apt: bool
    system_python: tuple[int, int] | None  # what /usr/bin/python3 is
    gpus: tuple[str, ...]
    namespace_refusal: str = ""  # what the kernel refuses a sandbox
    cuda: cuda_host.CudaHost | None = None  # read only where CUDA is asked for


def inspect_machine(paths: Paths, *, device: str, environments_ready: bool) -> Machine:
    """Read the facts; never fails, a fact that cannot be read counts as missing."""
    memory = _memory()
    return Machine(
        python=sys.version_info[:2],
        has_venv=all(_has_module(name) for name in ("venv", "ensurepip", "ssl")),
        system=platform.system(),
        architecture=platform.machine(),
        glibc=_glibc(),
        memory_total_bytes=memory[0],
        memory_available_bytes=memory[1],
        root_path=str(paths.root),
        disk_free_bytes={
            "environments": _free_bytes(paths.environments),
            "checkout": _free_bytes(paths.root),
            "data": _free_bytes(paths.data),
        },
        disk_no_exec=_is_no_exec(paths.environments) or _is_no_exec(paths.root),
        environments_ready=environments_ready,
        loopback_error=_loopback_error(),
        shared_memory_writable=os.access("/dev/shm", os.W_OK),
        has_lscpu=shutil.which("lscpu") is not None,
        is_root=os.geteuid() == 0,
        has_apt=shutil.which("apt-get") is not None,
        system_python=_system_python(),
        gpus=gpus(),
        namespace_refusal=namespace_error(),
        cuda=cuda_host.inspect_cuda(os.environ) if device == "cuda" else None,
    )


def run_checks(machine: Machine) -> list[CheckResult]:
    """Judge the facts; every check, in the order in which a reader would act on them."""
    return [
        _python(machine),
        _venv(machine),
        _platform(machine),
        _memory_finding(machine),
        _disk(machine),
        _path(machine),
        CheckResult(
            "loopback",
            not machine.loopback_error,
            machine.loopback_error or "ports can be opened on 127.0.0.1",
            "ip link set lo up" if machine.loopback_error else "",
        ),
        CheckResult(
            "shared memory",
            machine.shared_memory_writable,
            "/dev/shm is writable" if machine.shared_memory_writable else "/dev/shm is missing or read-only",
            "" if machine.shared_memory_writable else "mount -t tmpfs tmpfs /dev/shm",
        ),
        CheckResult(
            "lscpu",
            machine.has_lscpu,
            "found" if machine.has_lscpu else "not on PATH; the engine asks it for the processor's layout",
            "" if machine.has_lscpu else "apt-get install util-linux",
        ),
        *_cuda(machine),
    ]


def check(paths: Paths, *, device: str, environments_ready: bool, echo: Callable[[str], None]) -> Machine:
    """Report every check; install python3-venv where that is possible; StackError if something is missing."""
    machine = inspect_machine(paths, device=device, environments_ready=environments_ready)
    if not machine.has_venv and machine.is_root and machine.has_apt:
        _install_venv(machine, echo)
        machine = inspect_machine(paths, device=device, environments_ready=environments_ready)
    results = run_checks(machine)
    failed = [result for result in results if not result.ok]
    for result in results:
        echo(f"  {'ok  ' if result.ok else 'FAIL'} {result.name}: {result.detail}")
        if result.way_out and not result.ok:
            echo(f"       type: {result.way_out}")
    if machine.memory_available_bytes < RECOMMENDED_FREE_MEMORY_BYTES:
        echo(
            f"  note memory: only {format_bytes(machine.memory_available_bytes)} is free now; the demo uses about "
            f"{format_bytes(RECOMMENDED_FREE_MEMORY_BYTES)}. Close other programs if it is killed."
        )
    for line in sandbox_note(machine):
        echo(line)
    for gpu in machine.gpus:
        echo(f"  note GPU: {gpu}")
    if machine.gpus and machine.cuda is None:
        echo("       It is not used unless you ask for it: make demo DEVICE=cuda")
    if failed:
        names = ", ".join(result.name for result in failed)
        raise StackError(
            f"{len(failed)} of {len(results)} checks failed ({names}). Type the lines above, then try again."
        )
    return machine


def sandbox_note(machine: Machine) -> list[str]:
    """What a machine without a sandbox can still do, and the line that brings one."""
    if not machine.namespace_refusal:
        return []
    command = command_for_user_namespaces(read_kernel_settings(), in_container=in_container())
    return [
        f"  note sandbox: none on this machine, for {machine.namespace_refusal}. Without one {WITHOUT_SANDBOX}.",
        f"       For a sandbox type: {command}",
    ]


def gpus() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs that this machine shows, without loading any library."""
    folder = Path("/proc/driver/nvidia/gpus")
    names = []
    for information in sorted(folder.glob("*/information")) if folder.is_dir() else []:
        try:
            lines = information.read_text().splitlines()
        except OSError:
            continue
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return tuple(names)


def _python(machine: Machine) -> CheckResult:
    found = f"Python {machine.python[0]}.{machine.python[1]}"
    return CheckResult(
        "python",
        machine.python == (3, 11),
        found if machine.python == (3, 11) else f"{found}, but the pinned packages are for Python 3.11",
        "apt-get install python3.11 python3.11-venv",
    )


def venv_package(machine: Machine) -> str:
    """The Debian package that brings venv and ensurepip for the Python in use."""
    if machine.system_python == machine.python:
        return "python3-venv"
    return f"python{machine.python[0]}.{machine.python[1]}-venv"


def _venv(machine: Machine) -> CheckResult:
    if machine.has_venv:
        return CheckResult("venv", True, "modules venv, ensurepip and ssl are there")
    return CheckResult(
        "venv", False, "this Python lacks venv, ensurepip or ssl", f"apt-get install {venv_package(machine)}"
    )


def _platform(machine: Machine) -> CheckResult:
    glibc = ".".join(map(str, machine.glibc)) if machine.glibc else "none"
    detail = f"{machine.system} {machine.architecture}, glibc {glibc}"
    ok = machine.system == "Linux" and machine.architecture == "x86_64"
    ok = ok and machine.glibc is not None and machine.glibc >= MIN_GLIBC
    if not ok:
        detail += "; needed: Linux x86_64 with glibc 2.34 or newer"
    return CheckResult("platform", ok, detail, "use Debian 12, Ubuntu 22.04 or newer on x86-64")


def _memory_finding(machine: Machine) -> CheckResult:
    ok = machine.memory_total_bytes >= MIN_MEMORY_BYTES
    detail = f"{format_bytes(machine.memory_total_bytes)}, {format_bytes(machine.memory_available_bytes)} of it free"
    if not ok:
        detail += "; a machine of 8 GB is needed"
    return CheckResult(
        "memory", ok, detail, "use a larger machine, or raise the container's memory limit to 8g"
    )


def _disk(machine: Machine) -> CheckResult:
    if machine.environments_ready:
        needed = MIN_DISK_AFTER_SETUP_BYTES
    else:
        needed = MIN_DISK_BYTES if machine.cuda is None else MIN_DISK_CUDA_BYTES
    short = {name: free for name, free in machine.disk_free_bytes.items() if free < needed}
    if machine.disk_no_exec:
        return CheckResult(
            "disk",
            False,
            "programs may not run from this file system (noexec)",
            "OOLONG_HOME=/path/on/another/disk python3 manage.py preflight",
        )
    least = min(machine.disk_free_bytes.values())
    detail = f"{format_bytes(least)} free, {format_bytes(needed)} needed"
    if short:
        detail += " for " + ", ".join(sorted(short))
    return CheckResult(
        "disk", not short, detail, "free space, or OOLONG_HOME=/path/on/another/disk python3 manage.py …"
    )


def _cuda(machine: Machine) -> list[CheckResult]:
    if machine.cuda is None:
        return []
    missing = cuda_host.missing(machine.cuda)
    if not missing:
        return [CheckResult("cuda", True, f"driver, compilers, and the toolkit in {machine.cuda.toolkit}")]
    return [CheckResult("cuda", False, lack.what, lack.way_out) for lack in missing]


def _path(machine: Machine) -> CheckResult:
    ok = ":" not in machine.root_path and "\n" not in machine.root_path
    return CheckResult(
        "checkout path",
        ok,
        machine.root_path if ok else f"{machine.root_path!r} has a colon, which PATH cannot carry",
        "move the checkout to a folder without a colon",
    )


def _install_venv(machine: Machine, echo: Callable[[str], None]) -> None:
    package = venv_package(machine)
    echo(f"  This Python has no venv module. You are root and apt is here: installing {package}.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", package]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0 and command[1] == "install":
            echo(f"  {' '.join(command)} failed:\n" + (done.stderr or done.stdout).strip()[-1500:])
            return
    importlib.invalidate_caches()


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _glibc() -> tuple[int, int] | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""  # "glibc 2.36"
    except (ValueError, OSError):
        return None
    parts = text.partition(" ")[2].split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) >= 2 else None


def _memory() -> tuple[int, int]:
    """Total and available bytes, the smaller of the machine's and the container's."""
    values: dict[str, int] = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            values[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return (0, 0)
    total, available = values.get("MemTotal", 0), values.get("MemAvailable", 0)
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return (total, available)
    return (min(total, limit), min(available, max(0, limit - used)))


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _free_bytes(path: Path) -> int:
    try:
        return shutil.disk_usage(_existing(path)).free
    except OSError:
        return 0


def _is_no_exec(path: Path) -> bool:
    return bool(os.statvfs(_existing(path)).f_flag & os.ST_NOEXEC)


def _loopback_error() -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            with socket.create_connection(server.getsockname(), timeout=2):
                return ""
    except OSError as error:
        return f"no connection over 127.0.0.1: {error}"


def _system_python() -> tuple[int, int] | None:
    try:
        name = os.path.basename(os.path.realpath("/usr/bin/python3"))  # python3.11
        major, minor = name.removeprefix("python").split(".")[:2]
        return (int(major), int(minor))
    except (ValueError, OSError):
        return None
