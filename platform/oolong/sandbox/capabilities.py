"""What the sandbox of this machine can enforce, and the command that adds what is missing."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


class SandboxUnsupported(Exception):
    """This machine cannot run untrusted code. The message gives the reason and the command that fixes it."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    user_namespace: bool  # required
    seccomp: bool  # required
    memory_bound: Literal["cgroup v1", "cgroup v2", "supervisor", "none"]
    process_bound: Literal["kernel", "supervisor", "none"]
    own_uid: bool  # each sandbox runs under a uid that owns nothing else; needs root
    message: str = ""  # what is missing
    command: str = ""  # run once by an administrator to add it

    @property
    def runs_code(self) -> bool:
        return self.user_namespace and self.seccomp and "none" not in (self.memory_bound, self.process_bound)

    def require(self) -> None:
        """Raise SandboxUnsupported unless untrusted code may run here."""
        if not self.runs_code:
            way_out = f". Type: {self.command}" if self.command else ""
            raise SandboxUnsupported(f"code of users is not run on this machine: {self.message}{way_out}")

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "runs_code": self.runs_code}


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """Kernel settings that can forbid user namespaces; None where the kernel lacks the setting."""

    max_user_namespaces: int | None
    unprivileged_userns_clone: int | None  # Debian's
    apparmor_restrict_unprivileged_userns: int | None  # Ubuntu's, since 24.04
    filtered: bool = False  # system calls of this process are filtered, as a container's are
    in_chroot: bool = False  # Linux makes no user namespace for a process whose root is not its mounts' root


def read_kernel_settings(root: Path = Path("/proc/sys")) -> KernelSettings:
    def number(path: str) -> int | None:
        try:
            return int((root / path).read_text())
        except (OSError, ValueError):
            return None

    return KernelSettings(
        max_user_namespaces=number("user/max_user_namespaces"),
        unprivileged_userns_clone=number("kernel/unprivileged_userns_clone"),
        apparmor_restrict_unprivileged_userns=number("kernel/apparmor_restrict_unprivileged_userns"),
        filtered=is_filtered(),
        in_chroot=in_chroot(),
    )


def is_filtered(status: Path = Path("/proc/self/status")) -> bool:
    """Whether a seccomp filter decides on this process's system calls."""
    try:
        return "Seccomp:\t2" in status.read_text()
    except OSError:  # no /proc
        return False


def in_chroot() -> bool:
    """As far as this process can see: root compares with process 1, others look for a mount at /."""
    try:
        first, own = os.stat("/proc/1/root/"), os.stat("/")
        return (first.st_dev, first.st_ino) != (own.st_dev, own.st_ino)
    except OSError:  # not ours to look at, or no /proc
        pass
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    return not any(line.split()[4] == "/" for line in lines)


ENTER_WITHOUT_CHROOT = (
    "sudo unshare --mount sh -c 'mount --rbind FOLDER FOLDER && cd FOLDER && mkdir -p .old && pivot_root . .old && "
    "umount -l /.old && exec su -'   # in place of chroot FOLDER"
)


def command_for_user_namespaces(settings: KernelSettings, *, in_container: bool) -> str:
    """The command that enables user namespaces on this machine."""
    if settings.max_user_namespaces == 0:
        return "sudo sysctl -w user.max_user_namespaces=15000"
    if settings.unprivileged_userns_clone == 0:
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if settings.apparmor_restrict_unprivileged_userns == 1:
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    if settings.in_chroot:
        return ENTER_WITHOUT_CHROOT
    if in_container or settings.filtered:
        return "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …"
    return ENTER_WITHOUT_CHROOT  # nothing else that is known forbids it


def in_container() -> bool:
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
