"""The file system view of an isolated job, and the bubblewrap command that creates it.

The view is an allow-list: system programs and libraries, Python environments, Oolong's code and the attempt's inputs,
all read-only, and the job's own directories. Paths are the same inside and outside. The agent's credential and cache,
other attempts, home directories and other services are not visible, and /proc shows only this job's processes.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ENTER = Path(__file__).with_name("enter.py")

# The files in /etc that programs need for libraries, names, certificates and time zones.
ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "fonts", "gai.conf", "group", "host.conf", "hosts",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libibverbs.d", "localtime", "mime.types", "nccl.conf",
    "nsswitch.conf", "OpenCL", "os-release", "passwd", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem",
    "protocols", "resolv.conf", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "timezone", "vulkan",
)  # fmt: skip
DEVICES = ("nvidia*", "infiniband", "gdrdrv", "dri", "kfd")


@dataclass(frozen=True, kw_only=True)
class View:
    bubblewrap: Path
    python: Path  # runs `enter`
    uid: int | None  # of the job; None: the agent's own, in a user namespace
    directory: Path  # the working directory, one of `writable` or below one
    read_only: tuple[Path, ...]
    writable: tuple[Path, ...]
    temporary: Path  # becomes /tmp
    links: tuple[tuple[Path, str], ...] = ()  # symbolic links to an interpreter, with their targets
    with_gpus: bool = False


KEEP_USER = "-"  # also in enter


def command(view: View, job: list[str]) -> list[str]:
    """Return the command that runs `job` in its view."""
    words = [str(view.bubblewrap), "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
    if view.uid is None:
        words += ["--unshare-user", "--cap-drop", "ALL"]
    else:
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    words += _system(with_gpus=view.with_gpus)
    words += ["--bind", str(view.temporary), "/tmp"]
    words += _paths(view)
    words += ["--remount-ro", "/"]
    # Root without capabilities may not access the job's directory, so `enter` changes to it as the job's user.
    user = KEEP_USER if view.uid is None else str(view.uid)
    enter = [str(view.python), "-I", "-S", "-B", str(ENTER), user, str(view.directory)]
    return [*words, "--chdir", "/", "--", *enter, *job]


def links_of(program: Path) -> dict[Path, str]:
    """The chain of symbolic links from a program to its file: Python interpreters are often links."""
    links: dict[Path, str] = {}
    path = Path(os.path.abspath(program))
    while path.is_symlink() and path not in links:
        links[path] = os.readlink(path)
        path = Path(os.path.normpath(path.parent / links[path]))
    return links


def aliases(path: Path) -> set[Path]:
    """The path and its resolved form; programs use both."""
    return {Path(os.path.abspath(path)), path.resolve()}


def is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _system(*, with_gpus: bool) -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for folder in ("/etc", "/etc/ssl", "/etc/pki", "/etc/pki/tls"):
        words += ["--perms", "0755", "--dir", folder]
    for name in ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--ro-bind", "/sys", "/sys", "--proc", "/proc", "--dev", "/dev"]
    words += ["--perms", "1777", "--tmpfs", "/dev/shm"]
    if with_gpus:
        for pattern in DEVICES:
            for device in sorted(Path("/dev").glob(pattern)):
                words += ["--dev-bind", str(device), str(device)]
    return words


def _paths(view: View) -> list[str]:
    """Bind arguments, parents first."""
    binds: dict[Path, str] = {}
    for path in view.read_only:
        binds |= dict.fromkeys(aliases(path), "--ro-bind")
    for path in view.writable:
        binds |= dict.fromkeys(aliases(path), "--bind")
    links = {path: target for path, target in view.links if not is_below(path, [*binds, Path("/usr")])}
    words: list[str] = []
    made: set[Path] = {Path("/"), Path("/usr"), Path("/etc"), Path("/tmp"), Path("/dev")}
    for path in sorted({**binds, **links}, key=lambda path: path.parts):
        if binds.get(path) == "--ro-bind" and path.is_relative_to("/usr"):
            continue  # there already
        for parent in reversed(path.parents):
            if not is_below(parent, binds) and parent not in made and not parent.is_relative_to("/usr"):
                made.add(parent)
                words += ["--perms", "0755", "--dir", str(parent)]
        words += (
            ["--symlink", links[path], str(path)] if path in links else [binds[path], str(path), str(path)]
        )
    return words
