"""How much a sandbox may use. What a limit does when it is reached is in `outcome.Status`."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1024**2


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The first six hold for one test (a program is one test), `total_wall_seconds` for the whole sandbox."""

    cpu_seconds: float = (
        6.0  # of all processes together; the kernel counts whole seconds, so it is rounded up
    )
    wall_seconds: float = 10.0  # without the time in which others had the cores that it was ready to run on
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
