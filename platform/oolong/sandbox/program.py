"""What runs in a sandbox: one Python program, once or once per test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Test:
    """One run of the program, in a process forked for it. What one test leaves behind is gone for the next."""

    __test__ = False  # not a test case of pytest

    payload: Any = None  # JSON; the program sees it as `payload`
    stdin: bytes = b""
    output_bytes: int | None = None  # less than the limit, where so much says that it is wrong


@dataclass(frozen=True, kw_only=True)
class Program:
    """Python source, run as `__main__` with these names beside the built-in ones:

    `payload` (of the test), `common` (the same for every test) and `report(value)`, which hands one JSON value
    out. The code is compiled and run inside; nothing outside ever executes or unpickles what comes back.
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
