"""A small control plane for tests of the agent: the agent API in its real shape, over real HTTP, with faults on order.

It keeps what the real one keeps (offsets, parts, desired state) in memory. A fault is one entry of `faults`:
the next request whose path contains the entry's text is treated so.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from oolong.contracts.agent import (
    BATCH_BYTES,
    BATCH_CHUNKS,
    ChunkReply,
    DesiredAttempt,
    EnrollReply,
    EnrollRequest,
    HeartbeatReply,
    HeartbeatRequest,
    ObservedJob,
    SecretsReply,
    SecretsRequest,
    TelemetryBatchHead,
    TelemetryBatchReply,
    TelemetryChunk,
    UploadReply,
)
from oolong.contracts.lifecycle import JobState

JOIN_TOKEN = "enroll-once"
CREDENTIAL = "credential-of-the-node"


@dataclass
class Fault:
    path: str  # part of the request's path
    kind: (
        str  # refuse (503, nothing done) | lose_answer (done, connection cut) | cut_body (half of the answer)
    )


@dataclass
class Upload:
    body: dict[str, object]
    parts: dict[int, bytes] = field(default_factory=dict)
    stored: bool = False


@dataclass
class ScriptedControlPlane:
    desired: list[DesiredAttempt] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    part_bytes: int = 4096
    away: bool = False  # answers nothing but 503
    acknowledges: bool = True
    orphan_ttl_seconds: float = 600.0
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)  # job -> variable -> value
    refused: dict[str, ChunkReply] = field(default_factory=dict)  # what chunks of a job are answered
    poison: set[str] = field(default_factory=set)  # jobs: a body with a chunk of one is refused as a whole
    holds_logs: bool = False  # the answer to bodies with logs waits as long as this is so
    holds_heartbeats: bool = False  # one that waits for news is answered by news alone, not by time
    revoked: bool = False  # the node's credential
    fenced: set[str] = field(default_factory=set)  # attempts whose epoch is old

    enrolled: list[EnrollRequest] = field(default_factory=list)
    heartbeats: list[HeartbeatRequest] = field(default_factory=list)
    held: int = 0  # heartbeats that wait for news now
    files: dict[tuple[str, str], bytearray] = field(
        default_factory=dict
    )  # outbox and log content, by (job, name)
    uploads: dict[str, Upload] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)  # "METHOD path status"
    chunks: list[int] = field(default_factory=list)  # sizes of shipped chunks
    bodies: list[tuple[int, int]] = field(default_factory=list)  # of batches: chunks, and bytes with the head
    ranges: list[str] = field(default_factory=list)  # Range headers of artifact requests
    url: str = ""

    def job(self, job_id: str) -> ObservedJob | None:
        """As the newest heartbeat told it."""
        for job in self.heartbeats[-1].jobs if self.heartbeats else []:
            if job.job_id == job_id:
                return job
        return None

    def revision(self) -> int:
        return hash(msgspec.json.encode(self.desired)) & 0x7FFFFFFF

    def content(self, job_id: str, name: str) -> bytes:
        return bytes(self.files.get((job_id, name), b""))

    def stored_upload(self, step: int) -> bytes | None:
        for upload in self.uploads.values():
            if upload.body["step"] == step and upload.stored:
                return b"".join(upload.parts[number] for number in sorted(upload.parts))
        return None

    @contextmanager
    def serve(self) -> Iterator[ScriptedControlPlane]:
        started = threading.Event()
        loop = asyncio.new_event_loop()
        ended = asyncio.Event()

        async def main() -> None:
            app = web.Application(client_max_size=64 * 1024**2, middlewares=[self._script])
            base = "/api/v1/agent"
            app.router.add_post(f"{base}/enroll", self._enroll)
            app.router.add_post(f"{base}/heartbeat", self._heartbeat)
            app.router.add_get(f"{base}/artifacts/{{sha256}}", self._artifact)
            app.router.add_post(f"{base}/jobs/{{job}}/secrets", self._secrets)
            app.router.add_post(f"{base}/telemetry", self._shipments)
            app.router.add_post(f"{base}/attempts/{{attempt}}/checkpoints", self._begin)
            app.router.add_put(f"{base}/uploads/{{upload}}/parts/{{number}}", self._part)
            app.router.add_post(f"{base}/uploads/{{upload}}/complete", self._complete)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            assert site._server is not None
            self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
            started.set()
            await ended.wait()
            await runner.cleanup()

        thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
        thread.start()
        assert started.wait(60)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(60)
            assert not thread.is_alive(), "the scripted control plane does not end"
            loop.close()

    # --- what goes wrong

    @web.middleware
    async def _script(self, request: web.Request, handler: object) -> web.StreamResponse:
        fault = next((fault for fault in self.faults if fault.path in request.path), None)
        if fault is not None:
            self.faults.remove(fault)
        if self.away or (fault is not None and fault.kind == "refuse"):
            self.requests.append(f"{request.method} {request.path} 503")
            return web.json_response({"code": "unavailable", "detail": "away"}, status=503)
        expected = JOIN_TOKEN if request.path.endswith("/enroll") else CREDENTIAL
        if request.headers.get("Authorization") != f"Bearer {expected}":
            return _problem(401, "not_authenticated")
        if self.revoked and expected == CREDENTIAL:
            return _problem(403, "node_revoked")
        response: web.StreamResponse = await handler(request)  # type: ignore[operator]
        self.requests.append(f"{request.method} {request.path} {response.status}")
        if fault is not None and fault.kind == "lose_answer":
            assert request.transport is not None
            request.transport.close()
        if fault is not None and fault.kind == "cut_body":
            assert isinstance(response, web.Response) and isinstance(response.body, bytes)
            cut = web.StreamResponse(status=response.status, headers=response.headers)
            cut.content_length = len(response.body)
            await cut.prepare(request)
            await cut.write(response.body[: len(response.body) // 2])
            assert request.transport is not None
            request.transport.close()
            return cut
        return response

    # --- the API

    async def _enroll(self, request: web.Request) -> web.Response:
        self.enrolled.append(msgspec.json.decode(await request.read(), type=EnrollRequest))
        return _json(
            EnrollReply(node_id="node_1", credential=CREDENTIAL, orphan_ttl_seconds=self.orphan_ttl_seconds)
        )

    async def _heartbeat(self, request: web.Request) -> web.Response:
        self.heartbeats.append(msgspec.json.decode(await request.read(), type=HeartbeatRequest))
        await self._hold(request)
        if self.revoked:
            return _problem(403, "node_revoked")
        acknowledged = [
            job.job_id
            for job in self.heartbeats[-1].jobs
            if self.acknowledges
            and job.state is JobState.EXITED
            and all(self._complete_file(job, file.file, file.bytes) for file in job.outbox)
        ]
        return _json(
            HeartbeatReply(attempts=self.desired, acknowledged=acknowledged, revision=self.revision())
        )

    async def _hold(self, request: web.Request) -> None:
        """As long as it asked for, while nothing changes and somebody waits for the answer."""
        wait = float(request.query.get("wait", "0"))
        revision = int(request.query.get("revision", self.revision()))
        if not wait:
            return
        until = time.monotonic() + wait
        self.held += 1
        try:
            while not self.revoked and self.revision() == revision and request.transport is not None:
                if time.monotonic() >= until and not self.holds_heartbeats:
                    break
                await asyncio.sleep(0.05)
        finally:
            self.held -= 1

    def _complete_file(self, job: ObservedJob, name: str, size: int) -> bool:
        return len(self.files.get((job.job_id, name), b"")) >= size

    async def _artifact(self, request: web.Request) -> web.Response:
        content = self.artifacts.get(request.match_info["sha256"])
        if content is None:
            return _problem(404, "not_found")
        header = request.headers.get("Range", "")
        self.ranges.append(header)
        if not header:
            return web.Response(body=content)
        begin = int(header.removeprefix("bytes=").removesuffix("-"))
        headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"}
        return web.Response(status=206, body=content[begin:], headers=headers)

    async def _secrets(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=SecretsRequest)
        assert asked.epoch >= 1
        values = self.secrets.get(request.match_info["job"])
        return _problem(409, "secret_missing") if values is None else _json(SecretsReply(variables=values))

    async def _shipments(self, request: web.Request) -> web.Response:
        head, _, rest = (await request.read()).partition(b"\n")
        chunks = msgspec.json.decode(head, type=TelemetryBatchHead).chunks
        assert 0 < len(chunks) <= BATCH_CHUNKS and len(rest) <= BATCH_BYTES
        assert len({(chunk.job_id, chunk.file) for chunk in chunks}) == len(chunks)
        of_logs = [chunk.file.startswith("output.log#") for chunk in chunks]
        assert all(of_logs) or not any(of_logs)
        self.bodies.append((len(chunks), len(head) + 1 + len(rest)))
        while self.holds_logs and any(of_logs):
            await asyncio.sleep(0.01)
        if self.poison & {chunk.job_id for chunk in chunks}:
            return _problem(422, "invalid")
        replies = []
        for chunk in chunks:
            body, rest = rest[: chunk.bytes], rest[chunk.bytes :]
            replies.append(self._append(chunk, body))
        assert rest == b""
        return _json(TelemetryBatchReply(chunks=replies))

    def _append(self, chunk: TelemetryChunk, body: bytes) -> ChunkReply:
        assert len(body) == chunk.bytes and (chunk.bytes > 0) != (chunk.skipped > 0)
        if chunk.skipped:
            body = b"\0" * chunk.skipped  # what a reader of the offsets sees
        elif chunk.file.startswith("output.log#"):
            assert len(body) <= 256 * 1024
        else:
            assert body.endswith(b"\n")
        if refusal := self.refused.get(chunk.job_id):
            return refusal
        content = self.files.setdefault((chunk.job_id, chunk.file), bytearray())
        if chunk.offset != len(content):
            return ChunkReply(status=409, offset=len(content))
        content += body
        self.chunks.append(chunk.bytes)
        return ChunkReply(status=200, offset=len(content))

    async def _begin(self, request: web.Request) -> web.Response:
        if request.match_info["attempt"] in self.fenced:
            return _problem(409, "stale_epoch")
        body = msgspec.json.decode(await request.read())
        upload_id = f"upl_{body['step']}"
        upload = self.uploads.setdefault(upload_id, Upload(body))
        return _json(
            UploadReply(
                upload_id=upload_id,
                part_bytes=self.part_bytes,
                received_parts=sorted(upload.parts),
                stored=upload.stored,
            )
        )

    async def _part(self, request: web.Request) -> web.Response:
        body = await request.read()
        if hashlib.sha256(body).hexdigest() != request.headers["X-Part-SHA256"]:
            return _problem(422, "sha256_mismatch")
        self.uploads[request.match_info["upload"]].parts[int(request.match_info["number"])] = body
        return web.Response(status=204)

    async def _complete(self, request: web.Request) -> web.Response:
        upload = self.uploads[request.match_info["upload"]]
        content = b"".join(upload.parts[number] for number in sorted(upload.parts))
        if hashlib.sha256(content).hexdigest() != upload.body["tar_sha256"]:
            return _problem(422, "sha256_mismatch")
        upload.stored = True
        return _json(
            UploadReply(
                upload_id=request.match_info["upload"],
                part_bytes=self.part_bytes,
                received_parts=sorted(upload.parts),
                stored=True,
            )
        )


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _problem(status: int, code: str) -> web.Response:
    return web.json_response(
        {"code": code, "detail": code, "status": status},
        status=status,
        content_type="application/problem+json",
    )
