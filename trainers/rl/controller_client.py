"""Blocking client for the controller's trainer API."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from oolong.contracts import rollout
from oolong.system.rpc import RpcClient

Reply = TypeVar("Reply", bound=rollout.Message)


class ControllerClient:
    """Each call returns the reply, or raises `RpcError` or `RpcUnavailable`. Use it in one thread.

    Lost calls and 5xx replies are retried. That is safe: announcing a version is idempotent, and repeating a take at
    one version returns the same batch.
    """

    def __init__(self, url: str, token: str) -> None:
        self._rpc = RpcClient("the rollout controller", url, token, retry_server_errors=True)
        self._runner = asyncio.Runner()

    def announce(self, request: rollout.PublishVersionRequest) -> None:
        self._call("publish_version", request, rollout.Ack)

    def take(self, request: rollout.TakeRequest) -> rollout.TakeReply:
        return self._call("take", request, rollout.TakeReply, timeout=request.wait_seconds + 30.0)

    def snapshot(self, version: int) -> bytes:
        return self._call(
            "snapshot", rollout.SnapshotRequest(version=version), rollout.SnapshotReply
        ).snapshot

    def state(self) -> rollout.StateReply:
        return self._call("state", rollout.StateRequest(), rollout.StateReply)

    def probes(self) -> list[rollout.AckedProbe]:
        return self._call("probes", rollout.ProbesRequest(), rollout.ProbesReply).probes

    def stale_engine(self, request: rollout.StaleEngineRequest) -> None:
        self._call("stale_engine", request, rollout.Ack)

    def end(self, request: rollout.EndRequest) -> None:
        self._call("end", request, rollout.Ack)

    def close(self) -> None:
        self._runner.run(self._rpc.close())
        self._runner.close()

    def _call(
        self, method: str, request: rollout.Message, reply: type[Reply], *, timeout: float = 30.0
    ) -> Reply:
        return self._runner.run(self._rpc.call(method, request, reply, timeout=timeout))
