"""How sandboxes on this machine are isolated; the probe decides it once per process."""

from __future__ import annotations

from dataclasses import dataclass

from oolong.sandbox.cgroups import CgroupFactory


@dataclass(frozen=True, kw_only=True)
class IsolationConfig:
    seccomp: bool = True
    cgroups: CgroupFactory | None = None
    kernel_limits_processes: bool = True
    own_uid: bool = False
