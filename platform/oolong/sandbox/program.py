"""The Python program that a sandbox runs, once for each test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Test:
    """One run of the program in a forked process. Each test starts with an empty scratch directory."""

    __test__ = False  # not a test case of pytest

    payload: Any = None  # JSON; the program sees it as `payload`
    stdin: bytes = b""
    output_bytes: int | None = None  # stricter than the limit, for tests whose output must be short


@dataclass(frozen=True, kw_only=True)
class Program:
    """Python source, run as `__main__` with three extra names:

    `payload` (of the test), `common` (shared by all tests) and `report(value)`, which returns one JSON value. The code
    is compiled and run inside the sandbox; the host never executes or unpickles the output.
    """

    source: str
    common: Any = None
    tests: tuple[Test, ...] = (Test(),)
    imports: tuple[str, ...] = ()  # modules imported once, before the tests are forked
    packages: tuple[Path, ...] = ()  # host folders put on sys.path, read-only; reachable for every user
    files: dict[str, bytes] = field(
        default_factory=dict
    )  # name -> content, in the working directory of each test
    socket: Path | None = None  # a listening unix socket of the host, bound at `GUEST_SOCKET`


GUEST_SOCKET = "/run/service.sock"
