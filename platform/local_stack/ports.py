"""Ports on the loopback: the preferred one, else the next free; the same again at the next start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from local_stack.errors import StackError
from local_stack.files import file_lock, read_json, write_json

PREFERRED: dict[str, int] = {"web": 8400, "postgres": 8432, "valkey": 8479}
PORTS_TRIED = 200  # ports after the preferred one


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
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
    """Give each service a port: the one it had before if usable, else the first usable from the preferred on.

    Raises StackError when 200 ports in a row are taken.
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
                f"no free port for {name}: {first} to {first + PORTS_TRIED - 1} are all taken. "
                f"Free one, or name another: OOLONG_{name.upper()}_PORT=…"
            )
    return chosen


@contextmanager
def reserve(
    register: Path, *, clone_root: Path, before: Mapping[str, int], environ: Mapping[str, str], own: set[int]
) -> Iterator[dict[str, int]]:
    """Choose ports and keep other clones off them until the services have had time to open them.

    `own` are ports that live services of this clone hold: they count as usable. Clones of one user know each
    other by the register, also while they are down. Those of different users that start in the same moment
    are kept apart by a claim that the kernel drops when its holder ends.
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
    """Put OOLONG_WEB_PORT and the like in the place of the preferred port and of the last one."""
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
    """Hold a name that all users of this machine can see and only one process can have."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0oolong-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim
