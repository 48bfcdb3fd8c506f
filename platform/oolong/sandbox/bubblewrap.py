"""Builds the bubblewrap command line: mounts, namespaces and descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oolong.sandbox.program import GUEST_SOCKET
from oolong.sandbox.runtime_files import RuntimeFiles

# No network, and every namespace is required: `--unshare-user` fails where it is not available, while
# `--unshare-all` would continue without it.
_CUT_OFF = (
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
    "--uid", "1000", "--gid", "1000", "--hostname", "sandbox",
    "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--as-pid-1",
)  # fmt: skip
# No /proc, so a test cannot read the command line, mounts, environment or descriptors of process 1.
_DEVICES = ("null", "zero", "full", "random", "urandom")
_ENVIRONMENT = {"HOME": "/tmp", "LANG": "C.UTF-8", "PATH": "/python/bin", "PYTHONHASHSEED": "0"}


@dataclass(frozen=True, kw_only=True)
class Descriptors:
    """Descriptors that bubblewrap inherits."""

    guest_code: int  # bytecode of `guest`
    seccomp: int | None
    status: int  # bubblewrap writes the child's pid here
    block: int  # the child waits until something can be read here
    job: int
    results: int
    control: int  # replies of the supervisor while a test runs
    stdin: int  # -1: none
    stdout: int


def command(
    runtime_files: RuntimeFiles,
    descriptors: Descriptors,
    *,
    scratch_bytes: int,
    packages: Sequence[Path],
    socket: Path | None,
) -> list[str]:
    """The command of one sandbox. The root is a read-only tmpfs; only /tmp is writable."""
    words = [str(runtime_files.bubblewrap), *_CUT_OFF, "--clearenv"]
    for name, value in _environment(runtime_files).items():
        words += ["--setenv", name, value]
    words += _read_only_system(runtime_files)
    for number, package in enumerate(packages):
        words += ["--ro-bind", str(package), f"/packages/{number}"]
    for device in _DEVICES:
        words += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    words += ["--symlink", "/tmp/.stdin", "/dev/stdin", "--symlink", "/tmp", "/dev/shm"]
    if socket is not None:
        words += ["--bind", str(socket), GUEST_SOCKET]
    words += ["--ro-bind-data", str(descriptors.guest_code), "/guest.pyc"]
    words += ["--size", str(scratch_bytes), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]
    words += ["--json-status-fd", str(descriptors.status), "--block-fd", str(descriptors.block)]
    if descriptors.seccomp is not None:
        words += ["--seccomp", str(descriptors.seccomp)]
    inner = [
        descriptors.job, descriptors.results, descriptors.control, descriptors.stdin, descriptors.stdout,
    ]  # fmt: skip
    # -P -s -S: only the standard library on sys.path.
    return [*words, "--", "/python/bin/python3", "-P", "-s", "-S", "-B", "/guest.pyc", *map(str, inner)]


def _environment(runtime_files: RuntimeFiles) -> dict[str, str]:
    if runtime_files.shared_objects:
        return {**_ENVIRONMENT, "LD_LIBRARY_PATH": "/python/lib"}
    return _ENVIRONMENT


def _read_only_system(runtime_files: RuntimeFiles) -> list[str]:
    """Mount the host's shared libraries and one Python without site-packages."""
    words: list[str] = []
    for folder in _library_folders():
        words += ["--ro-bind", str(folder), str(folder)]
    for name in ("lib", "lib64", "lib32"):
        if Path("/usr", name).is_dir():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
    if Path("/etc/ld.so.cache").exists():
        words += ["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    inside = f"/python/lib/python{runtime_files.version}"
    words += ["--ro-bind", str(runtime_files.python), "/python/bin/python3"]
    words += ["--ro-bind", str(runtime_files.library), inside]
    for file in runtime_files.shared_objects:
        words += ["--ro-bind", str(file), f"/python/lib/{file.name}"]
    for name in ("site-packages", "dist-packages"):
        if (runtime_files.library / name).is_dir():
            words += ["--tmpfs", f"{inside}/{name}", "--remount-ro", f"{inside}/{name}"]
    return words


def _library_folders() -> list[Path]:
    """Folders of shared libraries: of Debian /usr/lib/x86_64-linux-gnu, elsewhere /usr/lib64 as a whole."""
    multiarch = Path("/usr/lib/x86_64-linux-gnu")
    folders = [multiarch] if multiarch.is_dir() else [Path("/usr/lib")]
    lib64 = Path("/usr/lib64")
    return folders + ([lib64] if lib64.is_dir() and not lib64.is_symlink() else [])
