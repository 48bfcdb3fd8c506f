"""Check the requirements of the machine and report all failures at once, each with a fix."""

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
# An 8 GB machine shows less: firmware and kernel reserve some. The demo was measured to need less than this.
MIN_MEMORY_BYTES = int(7.2 * GIGABYTE)
RECOMMENDED_FREE_MEMORY_BYTES = 4 * GIGABYTE
MIN_DISK_BYTES = 10 * GIGABYTE
# During installation, 4 GB of downloaded CUDA packages need space in addition to the 9 GB unpacked.
MIN_DISK_CUDA_BYTES = 16 * GIGABYTE
MIN_DISK_AFTER_SETUP_BYTES = 2 * GIGABYTE
MIN_GLIBC = (2, 34)  # SGLang's wheel is built for manylinux_2_34


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one check."""

    name: str
    ok: bool
    detail: str
    fix: str = ""  # the command or action when not ok


@dataclass(frozen=True)
class Machine:
    """Facts about the machine, read once, so that the checks are pure functions."""

    python: tuple[int, int]
    has_venv: bool
    system: str
    architecture: str
    glibc: tuple[int, int] | None
    memory_total_bytes: int
    memory_available_bytes: int
    root_path: str
    disk_free_bytes: dict[str, int]  # by content of the folder
    disk_no_exec: bool
    environments_ready: bool
    loopback_error: str  # empty if a port could be opened
    shared_memory_writable: bool
    has_lscpu: bool
    is_root: bool
    has_apt: bool
    system_python: tuple[int, int] | None  # version of /usr/bin/python3
    gpus: tuple[str, ...]
    namespace_refusal: str = ""  # why the kernel refuses a sandbox; empty if it allows one
    cuda: cuda_host.CudaHost | None = None  # None unless the device is cuda


def inspect_machine(paths: Paths, *, device: str, environments_ready: bool) -> Machine:
    """Read the facts. Never fails: a fact that cannot be read counts as missing."""
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
    """Run all checks, in the order in which a user would fix them."""
    return [
        _check_python(machine),
        _check_venv(machine),
        _check_platform(machine),
        _check_memory(machine),
        _check_disk(machine),
        _check_path(machine),
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
            "found" if machine.has_lscpu else "not on PATH; the engine uses it to read the CPU topology",
            "" if machine.has_lscpu else "apt-get install util-linux",
        ),
        *_check_cuda(machine),
    ]


def check(paths: Paths, *, device: str, environments_ready: bool, echo: Callable[[str], None]) -> Machine:
    """Report all checks, installing python3-venv if possible. Raises StackError if a check fails."""
    machine = inspect_machine(paths, device=device, environments_ready=environments_ready)
    if not machine.has_venv and machine.is_root and machine.has_apt:
        _install_venv(machine, echo)
        machine = inspect_machine(paths, device=device, environments_ready=environments_ready)
    results = run_checks(machine)
    failed = [result for result in results if not result.ok]
    for result in results:
        echo(f"  {'ok  ' if result.ok else 'FAIL'} {result.name}: {result.detail}")
        if result.fix and not result.ok:
            echo(f"       fix: {result.fix}")
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
        echo("       Oolong uses it only with DEVICE=cuda: make demo DEVICE=cuda")
    if failed:
        names = ", ".join(result.name for result in failed)
        raise StackError(
            f"{len(failed)} of {len(results)} checks failed ({names}). Apply the fixes above, then try again."
        )
    return machine


def sandbox_note(machine: Machine) -> list[str]:
    """Describe what works without a sandbox and how to enable one."""
    if not machine.namespace_refusal:
        return []
    command = command_for_user_namespaces(read_kernel_settings(), in_container=in_container())
    return [
        f"  note sandbox: not available: {machine.namespace_refusal}. Without one {WITHOUT_SANDBOX}.",
        f"       To enable it: {command}",
    ]


def gpus() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs, read without loading a library."""
    folder = Path("/proc/driver/nvidia/gpus")
    names = []
    for information in sorted(folder.glob("*/information")) if folder.is_dir() else []:
        try:
            lines = information.read_text().splitlines()
        except OSError:
            continue
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return tuple(names)


def _check_python(machine: Machine) -> CheckResult:
    found = f"Python {machine.python[0]}.{machine.python[1]}"
    return CheckResult(
        "python",
        machine.python == (3, 11),
        found if machine.python == (3, 11) else f"{found}, but the pinned packages are for Python 3.11",
        "apt-get install python3.11 python3.11-venv",
    )


def venv_package(machine: Machine) -> str:
    """Debian package with venv and ensurepip for the current Python."""
    if machine.system_python == machine.python:
        return "python3-venv"
    return f"python{machine.python[0]}.{machine.python[1]}-venv"


def _check_venv(machine: Machine) -> CheckResult:
    if machine.has_venv:
        return CheckResult("venv", True, "modules venv, ensurepip and ssl are available")
    return CheckResult(
        "venv", False, "this Python lacks venv, ensurepip or ssl", f"apt-get install {venv_package(machine)}"
    )


def _check_platform(machine: Machine) -> CheckResult:
    glibc = ".".join(map(str, machine.glibc)) if machine.glibc else "none"
    detail = f"{machine.system} {machine.architecture}, glibc {glibc}"
    ok = machine.system == "Linux" and machine.architecture == "x86_64"
    ok = ok and machine.glibc is not None and machine.glibc >= MIN_GLIBC
    if not ok:
        detail += "; needed: Linux x86_64 with glibc 2.34 or newer"
    return CheckResult("platform", ok, detail, "use Debian 12, Ubuntu 22.04 or newer on x86-64")


def _check_memory(machine: Machine) -> CheckResult:
    ok = machine.memory_total_bytes >= MIN_MEMORY_BYTES
    detail = f"{format_bytes(machine.memory_total_bytes)}, {format_bytes(machine.memory_available_bytes)} of it free"
    if not ok:
        detail += "; 8 GB are needed"
    return CheckResult(
        "memory", ok, detail, "use a larger machine, or raise the container's memory limit to 8g"
    )


def _check_disk(machine: Machine) -> CheckResult:
    if machine.environments_ready:
        needed = MIN_DISK_AFTER_SETUP_BYTES
    else:
        needed = MIN_DISK_BYTES if machine.cuda is None else MIN_DISK_CUDA_BYTES
    short = {name: free for name, free in machine.disk_free_bytes.items() if free < needed}
    if machine.disk_no_exec:
        return CheckResult(
            "disk",
            False,
            "the file system is mounted noexec",
            "OOLONG_HOME=/path/on/another/disk python3 manage.py preflight",
        )
    least = min(machine.disk_free_bytes.values())
    detail = f"{format_bytes(least)} free, {format_bytes(needed)} needed"
    if short:
        detail += " for " + ", ".join(sorted(short))
    return CheckResult(
        "disk", not short, detail, "free space, or OOLONG_HOME=/path/on/another/disk python3 manage.py …"
    )


def _check_cuda(machine: Machine) -> list[CheckResult]:
    if machine.cuda is None:
        return []
    missing = cuda_host.missing(machine.cuda)
    if not missing:
        return [CheckResult("cuda", True, f"driver, compilers, and the toolkit in {machine.cuda.toolkit}")]
    return [CheckResult("cuda", False, lack.what, lack.way_out) for lack in missing]


def _check_path(machine: Machine) -> CheckResult:
    ok = ":" not in machine.root_path and "\n" not in machine.root_path
    return CheckResult(
        "checkout path",
        ok,
        machine.root_path if ok else f"{machine.root_path!r} contains a colon, which PATH does not allow",
        "move the checkout to a folder without a colon",
    )


def _install_venv(machine: Machine, echo: Callable[[str], None]) -> None:
    package = venv_package(machine)
    echo(f"  This Python has no venv module. Installing {package} with apt.")
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
    """Total and available bytes: the lower limit of machine and container."""
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
