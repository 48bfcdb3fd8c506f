"""Ports of the jobs of nodes that live on this machine: no two nodes of tests get the same.

A control plane begins with a node's ports at random, for it takes each node for a machine of its own. Sessions of
tests run beside each other here, so each takes a part of the range, and each of its nodes a part of that.
"""

from __future__ import annotations

import functools
import itertools
import socket

PORTS_FROM, PORTS_TO = 20_000, 32_000  # control_plane.fleet.services has the same
OF_A_SESSION, OF_A_NODE = 1000, 100
NODES = OF_A_SESSION // OF_A_NODE

_held: list[socket.socket] = []
_databases = itertools.count()


@functools.cache
def first_of_session() -> int:
    """The first of the ports of this process, which no other process of tests has while it lives."""
    for first in range(PORTS_FROM, PORTS_TO, OF_A_SESSION):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0oolong-tests-node-ports-{first}")  # the kernel drops it with its process
        except OSError:
            claim.close()
            continue
        _held.append(claim)
        return first
    raise RuntimeError(
        f"every part of the ports {PORTS_FROM} to {PORTS_TO} is held by other sessions of tests"
    )


def apart() -> str:
    """SQL that gives the nodes which a database gets from now on ports of this process, one after the other."""
    begin = next(_databases) * 3 % NODES  # nodes of another database may live at the same time
    return f"""
        CREATE SEQUENCE IF NOT EXISTS nodes_of_tests MINVALUE 0 MAXVALUE {NODES - 1} START {begin} CYCLE;
        CREATE OR REPLACE FUNCTION ports_of_tests() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'INSERT' THEN
                NEW.next_port := {first_of_session()} + {OF_A_NODE} * nextval('nodes_of_tests');
            ELSIF NEW.next_port NOT BETWEEN OLD.next_port AND OLD.next_port + {OF_A_NODE} THEN
                NEW.next_port := OLD.next_port;  -- who enrolls it writes once more what it drew
            END IF;
            RETURN NEW;
        END $$;
        CREATE OR REPLACE TRIGGER ports_of_tests BEFORE INSERT OR UPDATE OF next_port ON fleet_node
            FOR EACH ROW EXECUTE FUNCTION ports_of_tests();
    """
