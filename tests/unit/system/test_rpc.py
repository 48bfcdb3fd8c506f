"""Calls are retried as far as their client says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from control_plane.runs.attempt_certificate import create_certificate
from oolong.contracts import rollout
from oolong.system.pinned_tls import server_context
from oolong.system.rpc import RpcClient, RpcError, RpcServer, RpcUnavailable

TOKEN = "token"


class Failing:
    """A method that fails unexpectedly the first `failures` times."""

    def __init__(self, failures: int) -> None:
        self.calls = 0
        self._failures = failures

    async def __call__(self, request: rollout.StateRequest) -> rollout.Ack:
        self.calls += 1
        if self.calls <= self._failures:
            raise RuntimeError("unexpected")
        return rollout.Ack()


async def call(method: Failing, *, retry_server_errors: bool, retry_seconds: float = 60.0) -> None:
    server = RpcServer(TOKEN)
    server.method("state", rollout.StateRequest, method)
    port = await server.start("127.0.0.1", 0)
    client = RpcClient("server", f"http://127.0.0.1:{port}", TOKEN, retry_server_errors=retry_server_errors)
    try:
        await client.call("state", rollout.StateRequest(), rollout.Ack, retry_seconds=retry_seconds)
    finally:
        await client.close()
        await server.close()


async def test_a_client_that_retries_server_errors_survives_one() -> None:
    method = Failing(failures=2)
    await call(method, retry_server_errors=True)
    assert method.calls == 3


async def test_server_errors_are_not_retried_for_ever() -> None:
    with pytest.raises(RpcUnavailable, match="HTTP 500"):
        await call(Failing(failures=1000), retry_server_errors=True, retry_seconds=0.0)


async def test_other_clients_raise_server_errors_at_once() -> None:
    method = Failing(failures=1)
    with pytest.raises(RpcError, match="http_500"):
        await call(method, retry_server_errors=False)
    assert method.calls == 1


async def test_another_node_needs_the_certificate_and_the_token() -> None:
    own, other = (create_certificate(name, now=datetime.now(UTC)) for name in ("own", "other"))
    server = RpcServer(TOKEN)
    server.method("state", rollout.StateRequest, Failing(failures=0))
    port = await server.start("127.0.0.1", 0)
    await server.listen_also("127.0.0.2", port, server_context(own.certificate, own.private_key))

    async def call_from_afar(certificate: str, token: str) -> None:
        client = RpcClient("server", f"https://127.0.0.2:{port}", token, certificate=certificate)
        try:
            await client.call("state", rollout.StateRequest(), rollout.Ack, retry_seconds=0.0)
        finally:
            await client.close()

    await call_from_afar(own.certificate, TOKEN)
    with pytest.raises(RpcError, match="unauthorized"):
        await call_from_afar(own.certificate, "of an earlier attempt")
    with pytest.raises(RpcUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await call_from_afar(other.certificate, TOKEN)
    await server.close()
