"""Client for the agent API of the control plane, authorized by the node's credential."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from gpu_agents.agent.settings import check_server_url
from oolong.contracts.agent import (
    ChunkReply,
    EnrollReply,
    EnrollRequest,
    HeartbeatReply,
    HeartbeatRequest,
    SecretsReply,
    SecretsRequest,
    TelemetryBatchHead,
    TelemetryBatchReply,
    TelemetryChunk,
    UploadReply,
)
from oolong.contracts.model_imports import ImportOrder, ImportProgress
from oolong.contracts.model_report import CheckOrder, ModelReport
from oolong.public_address import is_loopback
from oolong.tracing import headers as traced_headers
from oolong.tracing import span

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0


class ServerUnavailable(Exception):
    """The control plane is unreachable or asked to retry later."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds, if the server sent Retry-After


class ApiError(Exception):
    """The control plane rejected the request. Retrying it unchanged does not help."""

    def __init__(self, status: int, code: str, detail: str, body: bytes = b"") -> None:
        super().__init__(f"{status} {code}: {detail}" if code else f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.code = code  # stable problem code: stale_epoch, not_found, ...
        self.body = body


T = TypeVar("T")


class AgentApi:
    """Typed calls that raise ServerUnavailable or ApiError. The caller decides about retries."""

    def __init__(
        self, server: str, credential: str, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        url = check_server_url(server)
        self._http = httpx.AsyncClient(
            base_url=f"{url}/api/v1/agent/",
            headers={"Authorization": f"Bearer {credential}"},
            timeout=httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=32),
            # Never send loopback traffic through a proxy.
            trust_env=not is_loopback(urlsplit(url).hostname or ""),
            transport=transport,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def enroll(self, request: EnrollRequest) -> EnrollReply:
        return await self._json("enroll", request, EnrollReply)

    async def heartbeat(
        self, request: HeartbeatRequest, *, wait_seconds: float = 0.0, revision: int = -1
    ) -> HeartbeatReply:
        """Report the observed state and receive the desired state, after at most `wait_seconds` if it is unchanged.

        `revision` is that of the last reply.
        """
        params = {"wait": f"{wait_seconds:g}"} if wait_seconds else {}
        if revision >= 0:
            params["revision"] = str(revision)
        return await self._json(
            "heartbeat",
            request,
            HeartbeatReply,
            params=params,
            timeout=REQUEST_SECONDS + wait_seconds,
        )

    async def leave(self) -> None:
        """Leave the pool; the credential ends. Raises ApiError `node_in_use` while a run needs the node."""
        await self._json("leave", {}, dict)

    async def job_secrets(self, job_id: str, request: SecretsRequest) -> dict[str, str]:
        """Variable -> value, for the incarnation that is about to start."""
        return (await self._json(f"jobs/{job_id}/secrets", request, SecretsReply)).variables

    async def ship(self, chunks: list[TelemetryChunk], data: list[bytes]) -> list[ChunkReply]:
        """Send chunks of several files in one request; return the reply for each."""
        head = msgspec.json.encode(TelemetryBatchHead(chunks=chunks))
        request = self._http.build_request(
            "POST",
            "telemetry",
            content=b"".join([head, b"\n", *data]),
            headers={"Content-Type": "application/octet-stream"},
        )
        replies = _decode((await self._send(request)).content, TelemetryBatchReply).chunks
        if len(replies) != len(chunks):
            raise ServerUnavailable(f"telemetry: {len(replies)} replies to {len(chunks)} chunks")
        return replies

    @asynccontextmanager
    async def artifact(
        self, sha256: str, *, offset: int = 0
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """Stream an input from `offset`; yields (actual start offset, chunks)."""
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        request = self._http.build_request("GET", f"artifacts/{sha256}", headers=headers)
        response = await self._send(request, stream=True)
        try:
            if response.status_code == 206:
                begins = int(response.headers["Content-Range"].removeprefix("bytes ").split("-", 1)[0])
            else:
                begins = 0
            yield begins, _chunks(response)
        finally:
            await response.aclose()

    async def begin_upload(self, attempt_id: str, body: dict[str, object]) -> UploadReply:
        return await self._json(f"attempts/{attempt_id}/checkpoints", body, UploadReply)

    async def put_part(self, upload_id: str, number: int, data: bytes, *, sha256: str) -> None:
        headers = {"X-Part-SHA256": sha256, "Content-Type": "application/octet-stream"}
        request = self._http.build_request(
            "PUT", f"uploads/{upload_id}/parts/{number}", content=data, headers=headers, timeout=300.0
        )
        await self._send(request)

    async def complete_upload(self, upload_id: str) -> UploadReply:
        return await self._json(f"uploads/{upload_id}/complete", {}, UploadReply, timeout=300.0)

    async def begin_model_check(self, check_id: str) -> CheckOrder:
        return await self._json(f"model-checks/{check_id}/begin", {}, CheckOrder)

    async def report_model_check(self, check_id: str) -> None:
        await self._json(f"model-checks/{check_id}/progress", {}, dict)

    async def complete_model_check(self, check_id: str, report: ModelReport) -> None:
        await self._json(f"model-checks/{check_id}/complete", report, dict, timeout=60.0)

    async def begin_import(self, import_id: str) -> ImportOrder:
        return await self._json(f"imports/{import_id}/begin", {}, ImportOrder)

    async def report_import(self, import_id: str, progress: ImportProgress) -> None:
        await self._json(f"imports/{import_id}/progress", progress, dict)

    async def fail_import(self, import_id: str, message: str) -> None:
        await self._json(f"imports/{import_id}/failed", {"message": message}, dict)

    async def begin_import_upload(self, import_id: str, body: dict[str, object]) -> UploadReply:
        return await self._json(f"imports/{import_id}/uploads", body, UploadReply)

    async def put_import_part(self, import_id: str, number: int, data: bytes, *, sha256: str) -> None:
        headers = {"X-Part-SHA256": sha256, "Content-Type": "application/octet-stream"}
        request = self._http.build_request(
            "PUT", f"imports/{import_id}/parts/{number}", content=data, headers=headers, timeout=300.0
        )
        await self._send(request)

    async def complete_import(self, import_id: str) -> None:
        await self._json(f"imports/{import_id}/complete", {}, dict, timeout=600.0)

    async def _json(
        self,
        path: str,
        body: object,
        kind: type[T],
        *,
        params: dict[str, str] | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> T:
        with span(f"agent {path.partition('/')[0]}", kind="client"):
            request = self._http.build_request(
                "POST",
                path,
                content=msgspec.json.encode(body),
                headers={"Content-Type": "application/json", **traced_headers()},
                params=params or {},
                timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
            )
            return _decode((await self._send(request)).content, kind)

    async def _send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        try:
            response = await self._http.send(request, stream=stream)
            if response.is_success:
                return response
            if stream:
                await response.aread()
        except httpx.HTTPError as error:
            raise ServerUnavailable(
                f"{request.method} {request.url.path}: {error or type(error).__name__}"
            ) from error
        if response.status_code >= 500 or response.status_code in (408, 425, 429):
            raise ServerUnavailable(
                f"{request.method} {request.url.path}: {response.status_code}",
                retry_after=_seconds(response.headers.get("Retry-After")),
            )
        raise _api_error(response)


async def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    except httpx.HTTPError as error:
        raise ServerUnavailable(f"{response.url.path}: {error or type(error).__name__}") from error


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ServerUnavailable(f"the reply is not a {kind.__name__}: {error}") from error


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""
    title: str = ""


def _api_error(response: httpx.Response) -> ApiError:
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem(detail=response.text[:200])
    return ApiError(response.status_code, problem.code, problem.detail or problem.title, response.content)


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.replace(".", "", 1).isdigit() else None
