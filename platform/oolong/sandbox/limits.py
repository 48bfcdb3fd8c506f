"""Resource limits of a sandbox. `result.Status` has one status for each limit that can be exceeded."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1024**2


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits apply to each test; `total_wall_seconds` applies to the whole sandbox."""

    cpu_seconds: float = 6.0  # all processes together, rounded up: the kernel counts whole seconds
    wall_seconds: float = 10.0  # excludes time spent waiting for cores that other programs used
    output_bytes: int = 64 * 1024  # of standard output, of standard error, and of a reported value, each
    memory_bytes: int = 512 * MEBIBYTE  # of all processes together
    processes: int = 32  # and threads, all together
    open_files: int = 64
    file_bytes: int = 16 * MEBIBYTE  # size of one file that a program writes
    scratch_bytes: int = 32 * MEBIBYTE  # of /tmp, the only place that can be written
    scratch_files: int = 4096  # names in /tmp; seen where a supervisor watches
    total_wall_seconds: float = 60.0
    stop_at_first_failure: bool = False  # later tests are `not_run` once one has not ended with status 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name}={value} is not a limit; give a number above 0")
