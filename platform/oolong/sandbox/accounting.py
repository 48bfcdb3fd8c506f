"""Accounts CPU time and starvation of the tests in one sandbox.

Each test has a CPU limit, which all its processes share, and a wall-time limit. Wall time in which a test was runnable
but had no core does not count: the test gets an extension, or the sandbox fails instead of the test. A program cannot
starve itself (see `resource_usage.starved_seconds`).
"""

from __future__ import annotations

import math
import os
import time

from oolong.sandbox import cgroups, resource_usage
from oolong.sandbox.limits import Limits

CPU_GRACE_SECONDS = (
    0.5  # beyond the kernel's own bound of one process, which ends one test and not the sandbox
)
STARVED_FRACTION = 0.1  # of a bound: less than this is not credited
MAX_EXTENSION_FACTOR = (
    2.0  # times the bound of a test, or so many seconds if that is more; of the whole, once its bound
)
MAX_EXTENSION_SECONDS = 20.0
MIN_SAMPLE_SECONDS = 0.25  # between two looks, at least
SAMPLES_PER_TEST = 40  # during one test that lasts as long as it may


class TimeAccounting:
    """Call `start` once, `start_test` before each test, `sample` from time to time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pid = 0
        self._group: cgroups.Cgroup | None = None
        self._cpu_seconds = 0.0  # of the whole sandbox, as far as it was seen
        self._cpu_before = 0.0  # of it, before the current test
        self._first_before: resource_usage.ThreadSchedule | None = (
            None  # of process 1, which outlives the tests
        )
        self._sampled_at = 0.0
        self._test_began = time.monotonic()
        self._extension = 0.0  # of the current test
        self._extensions = 0.0  # of all tests
        self._starved = 0.0  # current test so far
        self._starved_before = 0.0  # the tests before it

    def start(self, pid: int, group: cgroups.Cgroup | None) -> None:
        self._pid, self._group = pid, group

    def start_test(self) -> None:
        self._starved_before += self._starved
        self._starved = self._extension = 0.0
        self._test_began = time.monotonic()
        self.read_cpu()
        self._cpu_before = self._cpu_seconds
        self._first_before = None

    @property
    def test_seconds(self) -> float:
        return time.monotonic() - self._test_began

    @property
    def test_deadline(self) -> float:
        return self._test_began + self._limits.wall_seconds + self._extension

    def read_cpu(self) -> None:
        """Read CPU time from the cgroup, else from /proc, which misses exited processes that nobody waited for."""
        counted = self._group.cpu_seconds() if self._group is not None else None
        if counted is None and self._pid:
            counted = resource_usage.measure_usage(self._pid).cpu_seconds
        self._cpu_seconds = max(self._cpu_seconds, counted or 0.0)

    def sample(self, *, at_once: bool = False) -> None:
        """Sample the CPU time and starvation of the current test, at most every MIN_SAMPLE_SECONDS."""
        now = time.monotonic()
        if now - self._sampled_at < MIN_SAMPLE_SECONDS and not at_once:
            return
        self._sampled_at = now
        threads = resource_usage.thread_schedules(self._pid)
        self.read_cpu()
        first = threads.pop(self._pid, None)
        if first is not None:
            before = self._first_before = self._first_before or first
            threads[self._pid] = resource_usage.ThreadSchedule(
                first.ran_seconds - before.ran_seconds, first.waited_seconds - before.waited_seconds
            )
        starved = resource_usage.starved_seconds(threads, self._cpu_seconds - self._cpu_before)
        self._starved = min(max(self._starved, starved), self.test_seconds)

    def sample_interval(self) -> float:
        """Seconds until the next sample: rare for long tests, and before all cores could use up the CPU limit."""
        until_over = (self._cpu_limit - self._cpu_seconds + self._cpu_before) / (os.cpu_count() or 1)
        return max(MIN_SAMPLE_SECONDS, min(self._limits.wall_seconds / SAMPLES_PER_TEST, until_over))

    def cpu_exceeded(self, counted_inside: float = 0.0) -> bool:
        return max(self._cpu_seconds - self._cpu_before, counted_inside) > self._cpu_limit

    def grant_extension(self) -> float:
        """Extend the current test by its starved time, within the maximum. Returns the seconds added."""
        owed = self._starved - self._extension
        if self.cpu_exceeded() or owed < STARVED_FRACTION * self._limits.wall_seconds:
            return 0.0
        room = min(
            max(MAX_EXTENSION_FACTOR * self._limits.wall_seconds, MAX_EXTENSION_SECONDS) - self._extension,
            self._limits.total_wall_seconds - self._extensions,
        )
        more = max(0.0, min(owed, room))
        self._extension += more
        self._extensions += more
        return more

    def was_starved(self, *, total: bool) -> bool:
        """Whether starvation, not the test (or with `total` all tests), explains the timeout."""
        if self.cpu_exceeded():  # that does
            return False
        if total:
            lost = self._starved_before + self._starved - self._extensions
            return lost >= STARVED_FRACTION * self._limits.total_wall_seconds
        return self._starved - self._extension >= STARVED_FRACTION * self._limits.wall_seconds

    def starved_message(self) -> str:
        return (
            f"other programs of this machine had the cores for {self._starved_before + self._starved:.1f} s in which a "
            "test was ready to run, so that its time limit decides nothing"
        )

    @property
    def _cpu_limit(self) -> float:
        return math.ceil(self._limits.cpu_seconds) + CPU_GRACE_SECONDS
