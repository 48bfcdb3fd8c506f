"""Tests what isolation this machine supports, by running programs that exceed each limit."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from oolong.sandbox.capabilities import (
    Capabilities,
    SandboxUnsupported,
    command_for_user_namespaces,
    in_container,
    read_kernel_settings,
)
from oolong.sandbox.cgroups import find_cgroups
from oolong.sandbox.isolation import IsolationConfig
from oolong.sandbox.limits import MEBIBYTE, Limits
from oolong.sandbox.program import Program
from oolong.sandbox.result import SandboxResult, Status
from oolong.sandbox.runtime_files import find_runtime_files
from oolong.sandbox.sandbox import FIRST_UID, Sandbox

_MakeSandbox = Callable[[IsolationConfig], Sandbox]
# Generous, so that a busy or stalled machine still passes.
_LIMITS = Limits(
    cpu_seconds=10, wall_seconds=45, memory_bytes=96 * MEBIBYTE, processes=8, total_wall_seconds=60.0
)
TRIES = 3
_TRIVIAL = "report('inside')"
_SYSTEM_CALLS = """
import ctypes, errno, socket
found = []
try:
    socket.socket(socket.AF_INET)
except OSError as error:
    found.append(errno.errorcode[error.errno])
libc = ctypes.CDLL(None, use_errno=True)
libc.unshare(0x10000000)
found.append(errno.errorcode.get(ctypes.get_errno(), "nothing"))
report(found)
"""
# Two processes, each below the limit but above it together: a limit per process would not catch them.
_MEMORY = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        kept = b"x" * (70 * 1024**2)
        time.sleep(30)
        os._exit(0)
os.wait()
"""
_PROCESSES = """
import os, time
made = 0
try:
    while made < 40:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
else:
    time.sleep(common)  # until whoever watches stops it
report(made)
"""


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    capabilities: Capabilities
    sandbox: Sandbox | None  # None if untrusted code must not run here

    def require(self) -> Sandbox:
        """Return the sandbox, or raise SandboxUnsupported with the command that fixes it."""
        self.capabilities.require()
        assert self.sandbox is not None
        return self.sandbox


def probe_sandbox(*, slots: int | None = None, first_uid: int = FIRST_UID) -> ProbeResult:
    """Test this machine in about a second. `slots`: concurrent sandboxes, by default one per core."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return _nothing(
            f"the sandbox is for Linux on x86-64, this is {platform.system()} {platform.machine()}"
        )
    own_uid = os.geteuid() == 0  # root inside a user namespace would still be the machine's root
    try:
        runtime_files = find_runtime_files(for_other_users=own_uid)
    except (
        SandboxUnsupported,
        OSError,
    ) as error:  # a part is missing, or could not be copied to where all can read
        return _nothing(str(error))
    number = slots or len(os.sched_getaffinity(0))

    def sandbox_with(isolation: IsolationConfig) -> Sandbox:
        return Sandbox(runtime_files, isolation, slots=number, first_uid=first_uid)

    isolation = IsolationConfig(seccomp=False, cgroups=None, kernel_limits_processes=False, own_uid=own_uid)
    plain = _try(sandbox_with(isolation), _TRIVIAL)
    if plain.error or plain.only.value != b'"inside"':
        said = plain.error or plain.only.stderr.decode(errors="replace")
        return _nothing(
            f"no sandbox can be made: {said}",
            command=command_for_user_namespaces(read_kernel_settings(), in_container=in_container()),
        )
    isolation = replace(isolation, seccomp=True)
    filtered = _try(sandbox_with(isolation), _SYSTEM_CALLS)
    if filtered.error or filtered.only.value != b'["EACCES", "ENOSYS"]':
        return _nothing(
            f"the kernel does not filter system calls: {filtered.error or filtered.only.value!r}",
            user_namespace=True,
            command="grep SECCOMP /boot/config-$(uname -r)",
        )
    isolation, memory_bound = _memory_bound(isolation, sandbox_with)
    isolation, process_bound = _process_bound(isolation, sandbox_with)
    capabilities = Capabilities(
        user_namespace=True,
        seccomp=True,
        memory_bound=memory_bound,
        process_bound=process_bound,
        own_uid=own_uid,
        message=""
        if "none" not in (memory_bound, process_bound)
        else "memory or processes cannot be bounded",
        command="" if "none" not in (memory_bound, process_bound) else "mount -t proc proc /proc",
    )
    return ProbeResult(
        capabilities=capabilities, sandbox=sandbox_with(isolation) if capabilities.runs_code else None
    )


def _memory_bound(
    isolation: IsolationConfig, sandbox_with: _MakeSandbox
) -> tuple[IsolationConfig, Literal["cgroup v1", "cgroup v2", "supervisor", "none"]]:
    factory = find_cgroups()
    if factory is not None:
        with_cgroups = replace(isolation, cgroups=factory)
        if _status(_try(sandbox_with(with_cgroups), _MEMORY)) is Status.MEMORY_LIMIT:
            return with_cgroups, factory.kind
    if _status(_try(sandbox_with(isolation), _MEMORY)) is Status.MEMORY_LIMIT:
        return isolation, "supervisor"
    return isolation, "none"


def _process_bound(
    isolation: IsolationConfig, sandbox_with: _MakeSandbox
) -> tuple[IsolationConfig, Literal["kernel", "supervisor", "none"]]:
    """The kernel counts processes per user namespace since Linux 5.14; before, other processes of the user
    count as well, and the bound would stop the sandbox itself."""
    by_kernel = replace(isolation, kernel_limits_processes=True)
    tried = _try(sandbox_with(by_kernel), _PROCESSES, 2.0)
    if not tried.error and tried.only.value is not None and 1 <= int(tried.only.value) <= _LIMITS.processes:
        return by_kernel, "kernel"
    if _status(_try(sandbox_with(isolation), _PROCESSES, 30.0)) is Status.PROCESS_LIMIT:
        return isolation, "supervisor"
    return isolation, "none"


def _try(sandbox: Sandbox, source: str, common: object = None) -> SandboxResult:
    """Repeated when it took too long or broke: after a stall that says nothing about this machine."""
    for _ in range(TRIES):
        outcome = sandbox.run(Program(source=source, common=common), _LIMITS)
        if not outcome.error and outcome.only.status is not Status.WALL_LIMIT:
            break
    return outcome


def _status(outcome: SandboxResult) -> Status:
    return outcome.only.status


def _nothing(message: str, *, user_namespace: bool = False, command: str = "") -> ProbeResult:
    capabilities = Capabilities(
        user_namespace=user_namespace,
        seccomp=False,
        memory_bound="none",
        process_bound="none",
        own_uid=False,
        message=message,
        command=command,
    )
    return ProbeResult(capabilities=capabilities, sandbox=None)
