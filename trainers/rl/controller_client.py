"""Client for the controller's trainer API: msgpack over HTTP, one connection, retries with a deadline."""

from __future__ import annotations

import http.client
import time
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from oolong.contracts import rollout

Reply = TypeVar("Reply", bound=msgspec.Struct)

BOOT_TIMEOUT_SECONDS = 180.0  # all jobs start at once, and the controller may start after the trainer
TIMEOUT_SECONDS = 60.0
_RETRY_SECONDS = 0.2


class ControllerUnreachable(Exception):
    """The controller did not answer before the deadline."""


class ControllerError(Exception):
    """The controller answered 400, 401 or 409 with this error code."""

    def __init__(self, method: str, reply: rollout.ErrorReply) -> None:
        super().__init__(f"controller rejected /{method}: {reply.code}: {reply.message}")
        self.code = reply.code


class ControllerClient:
    """Each call returns the reply, or raises `ControllerError` or `ControllerUnreachable`.

    Lost calls are retried. That is safe: announcing a version is idempotent, and repeating a take at one version
    returns the same batch.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        address = urlsplit(url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 80
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/msgpack"}
        self._connection: http.client.HTTPConnection | None = None
        self._timeout = BOOT_TIMEOUT_SECONDS

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
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(
        self, method: str, request: msgspec.Struct, reply: type[Reply], *, timeout: float = 30.0
    ) -> Reply:
        body = msgspec.msgpack.encode(request)
        started = time.monotonic()
        while True:
            try:
                status, data = self._post(method, body, timeout)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() - started > self._timeout:
                    raise ControllerUnreachable(
                        f"the rollout controller at {self._url} did not answer /{method} for {self._timeout:.0f} s "
                        f"({error!r}); see the controller's log"
                    ) from error
                time.sleep(_RETRY_SECONDS)
                continue
            self._timeout = TIMEOUT_SECONDS
            if status == 200:
                return msgspec.msgpack.decode(data, type=reply)
            raise ControllerError(method, _decode_error(status, data))

    def _post(self, method: str, body: bytes, timeout: float) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        self._connection.request("POST", f"/{method}", body, self._headers)
        response = self._connection.getresponse()
        data = response.read()
        if response.status >= 500:
            raise http.client.HTTPException(f"HTTP {response.status}: {data[:200]!r}")
        return response.status, data


def _decode_error(status: int, data: bytes) -> rollout.ErrorReply:
    try:
        return msgspec.msgpack.decode(data, type=rollout.ErrorReply)
    except msgspec.DecodeError:
        return rollout.ErrorReply(code=f"http_{status}", message=repr(data[:200]))
