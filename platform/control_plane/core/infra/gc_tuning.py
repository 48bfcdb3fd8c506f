"""Python's garbage collector in a process that serves many sockets."""

from __future__ import annotations

import gc

# A young collection after so many new objects, instead of Python's 700; a middle one after so many young ones, and a
# full one after so many of those. A full one stops every request and every socket.
THRESHOLDS = (10_000, 20, 20)


def freeze() -> None:
    """Everything that exists now (modules, models, routes) stays for the process's life: never look through it again.

    Call it once, at the end of the start. Over it and a thousand sockets a full collection took 0.17 s, in which no
    frame went out.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
