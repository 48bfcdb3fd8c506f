"""Ports on the loopback: the preferred one, else the next free; the same again at the next start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from local_stack.errors import StackError
from local_stack.files import locked, read_json, write_json

PREFERRED: dict[str, int] = {"web": 8400, "postgres": 8432, "valkey": 8479}
TRIED = 200  # ports after the preferred one


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(
    *,
    before: Mapping[str, int],
    preferred: Mapping[str, int],
    taken_by_other_clones: set[int],
    usable: Callable[[int], bool],
) -> dict[str, int]:
    """Give each service a port: the one it had before if usable, else the first usable from the preferred on.

    Raises StackError when 200 ports in a row are taken.
    """
    chosen: dict[str, int] = {}
    for name, first in preferred.items():
        candidates = [before[name]] if name in before else []
        candidates += list(range(first, first + TRIED))
        for port in candidates:
            if port not in taken_by_other_clones and port not in chosen.values() and usable(port):
                chosen[name] = port
                break
        else:
            raise StackError(
                f"no free port for {name}: {first} to {first + TRIED - 1} are all taken. "
                f"Free one, or name another: OOLONG_{name.upper()}_PORT=…"
            )
    return chosen


def reserve(
    register: Path, *, clone_root: Path, before: Mapping[str, int], environ: Mapping[str, str], own: set[int]
) -> dict[str, int]:
    """Choose ports under the register's lock, so that two clones that start together get different ones.

    `own` are ports that live services of this clone hold: they count as usable.
    """
    preferred = dict(PREFERRED)
    before = dict(before)
    for name in preferred:
        wish = environ.get(f"OOLONG_{name.upper()}_PORT")
        if wish:
            if not wish.isdigit() or not 0 < int(wish) < 65536:
                raise StackError(f"OOLONG_{name.upper()}_PORT={wish!r} is not a port number")
            preferred[name] = int(wish)
            before.pop(name, None)
    with locked(register.with_suffix(".lock")):
        known = {root: ports for root, ports in read_json(register).items() if Path(root).is_dir()}
        others = {
            port for root, ports in known.items() if root != str(clone_root) for port in dict(ports).values()
        }
        chosen = choose(
            before=before,
            preferred=preferred,
            taken_by_other_clones=others,
            usable=lambda port: port in own or is_free(port),
        )
        known[str(clone_root)] = chosen
        write_json(register, known)
    return chosen
