"""How a service bounds its sandboxes; the canary decides it once."""

from __future__ import annotations

from dataclasses import dataclass

from oolong.sandbox import cgroups


@dataclass(frozen=True, kw_only=True)
class Means:
    seccomp: bool = True
    groups: cgroups.Groups | None = None
    kernel_bounds_processes: bool = True
    own_uid: bool = False
