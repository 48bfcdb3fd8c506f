"""The check that no job listens beyond loopback can fail."""

from __future__ import annotations

import os
import socket

import pytest

from tests.support.listening import beyond_loopback, listeners


@pytest.mark.parametrize(("address", "reachable"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_socket_beyond_loopback_is_found(address: str, *, reachable: bool) -> None:
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]
        assert port in [found[2] for found in listeners(os.getpid())]
        assert (port in [found[2] for found in beyond_loopback(os.getpid())]) == reachable
