"""A hostile program: the capability that stops it, how it must end, and what it must report.

A program reports what it achieved; `[]` means nothing. `{name}` in a source is replaced by the baits of the machine
that a test sets up: see `conftest.Baits`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

BOUNDED = ("process_limit", "wall_limit", "memory_limit", "cpu_limit", "killed", "failed")
OVER_TIME = ("wall_limit", "cpu_limit")


@dataclass(frozen=True, kw_only=True)
class Attack:
    name: str
    needs: str  # user_namespace, seccomp, memory_bound, process_bound
    source: str
    ends: tuple[str, ...] = ("ok",)
    reports: object = None  # the expected report, if it ends ok
    core: bool = False  # also in `make test`, although it may run until a time limit

    @property
    def is_core(self) -> bool:
        """Also in `make test`: attacks that end at once, and the worst of the others."""
        return self.core or not set(OVER_TIME) & set(self.ends)


def system_call(name: str, number: int, arguments: str = "", *, refusal: int = errno.ENOSYS) -> Attack:
    """The filter, not the kernel, must reject a raw system call."""
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
got = libc.syscall({number}{", " + arguments if arguments else ""})
report([got, ctypes.get_errno()])
"""
    return Attack(name=name, needs="seccomp", source=source, reports=[-1, refusal])


def opens(name: str, paths: str) -> Attack:
    """No file may be read, and no directory listed."""
    source = f"""
import glob, os
got = []
for path in {paths}:
    try:
        got.append(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(100).hex())
    except OSError:
        pass
report(got)
"""
    return Attack(name=name, needs="user_namespace", source=source, reports=[])
