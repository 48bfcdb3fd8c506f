"""Allocate loopback ports: the one of the last start, else the preferred one, else the next free one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from local_stack.errors import StackError
from local_stack.files import file_lock, read_json, write_json

PREFERRED: dict[str, int] = {"web": 8400, "postgres": 8432, "valkey": 8479}
PORTS_TRIED = 200  # number of ports tried from the preferred one on


def is_free(port: int) -> bool:
    """Whether 127.0.0.1:`port` can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def allocate(
    *,
    before: Mapping[str, int],
    preferred: Mapping[str, int],
    used_by_other_clones: set[int],
    usable: Callable[[int], bool],
) -> dict[str, int]:
    """Give each service its previous port if usable, else the first usable port from the preferred one on.

    Raises StackError if 200 consecutive ports are in use.
    """
    chosen: dict[str, int] = {}
    for name, first in preferred.items():
        candidates = [before[name]] if name in before else []
        candidates += list(range(first, first + PORTS_TRIED))
        for port in candidates:
            if port not in used_by_other_clones and port not in chosen.values() and usable(port):
                chosen[name] = port
                break
        else:
            raise StackError(
                f"no free port for {name}: {first} to {first + PORTS_TRIED - 1} are all in use. "
                f"Free one, or set another port: OOLONG_{name.upper()}_PORT=…"
            )
    return chosen


@contextmanager
def reserve(
    register: Path, *, clone_root: Path, before: Mapping[str, int], environ: Mapping[str, str], own: set[int]
) -> Iterator[dict[str, int]]:
    """Allocate ports and reserve them until the services have opened them.

    `own` are ports of live services of this clone: they count as usable. The registry holds the ports of all
    clones of one user, running or not. Clones of different users that start at the same time are separated by a
    claim on an abstract socket, which the kernel releases when its process exits.
    """
    preferred, before = with_overrides(PREFERRED, before, environ)
    claims: dict[int, socket.socket] = {}

    def usable(port: int) -> bool:
        if port in own:
            return True
        claim = _claim(port)
        if claim is None:
            return False
        if not is_free(port):
            claim.close()
            return False
        claims[port] = claim
        return True

    try:
        with file_lock(register.with_suffix(".lock")):
            known = {root: ports for root, ports in read_json(register).items() if Path(root).is_dir()}
            others = {
                port for root, ports in known.items() if root != str(clone_root) for port in ports.values()
            }
            chosen = allocate(before=before, preferred=preferred, used_by_other_clones=others, usable=usable)
            known[str(clone_root)] = chosen
            write_json(register, known)
        yield chosen
    finally:
        for claim in claims.values():
            claim.close()


def with_overrides(
    preferred: Mapping[str, int], before: Mapping[str, int], environ: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Let OOLONG_WEB_PORT and similar variables override the preferred and the previous port."""
    new_preferred, new_before = dict(preferred), dict(before)
    for name in preferred:
        variable = f"OOLONG_{name.upper()}_PORT"
        override = environ.get(variable)
        if not override:
            continue
        if not override.isdigit() or not 0 < int(override) < 65536:
            raise StackError(f"{variable}={override!r} is not a port number")
        new_preferred[name] = int(override)
        new_before.pop(name, None)
    return new_preferred, new_before


def _claim(port: int) -> socket.socket | None:
    """Bind an abstract socket name, unique across all users of this machine; None if another process has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0oolong-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim
