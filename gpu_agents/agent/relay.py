"""The agent's end of the tunnel: one outbound WebSocket that carries users' requests to the jobs of this node.

While the socket is down, users get 503 and jobs continue. The desired state alone decides where a request may go
(`endpoints_of`): only to ports of this node's attempts, with the attempt's token. Headers are filtered by the
endpoint's allow-list on both sides.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from oolong.contracts.agent import DesiredAttempt
from oolong.contracts.relay.endpoints import ENDPOINTS, Endpoint, allowed, plain_path, ports_of
from oolong.contracts.relay.frames import AnyFrame, BadFrame, Open, decode, encode
from oolong.contracts.relay.pipe import Cancelled, Pipe
from oolong.public_address import is_loopback
from oolong.system.backoff import Backoff

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
JOB_CONNECT_SECONDS = 5.0
LONGEST_MESSAGE = 64 * 1024
MOST_REPEATED_BYTES = 64 * 1024  # of a request that may be retried at another endpoint
STREAM_SECONDS = 3600.0  # limit for any stream
REFUSED_HERE = frozenset({429, 503})  # another endpoint of the run may have capacity


@dataclass(frozen=True)
class JobEndpoint:
    """Where one job of an attempt listens on this node."""

    index: int  # of the job
    port: int
    token: str


class NoEndpoint(Exception):
    """This node does not serve the requested endpoint."""


def endpoints_of(opening: Open, attempts: Sequence[DesiredAttempt]) -> list[JobEndpoint]:
    """Return the endpoints that may serve the request, in order. Raises NoEndpoint.

    A path with an id ("sessions/1-ab12/…") belongs to the job with the number before the dash.
    """
    endpoint = ENDPOINTS.get(opening.endpoint)
    attempt = next((one for one in attempts if one.attempt_id == opening.attempt_id), None)
    if endpoint is None or attempt is None:
        raise NoEndpoint(f"this node has no {opening.endpoint} of attempt {opening.attempt_id}")
    if opening.method not in endpoint.methods or not plain_path(opening.path):
        raise NoEndpoint(f"{opening.endpoint} does not serve {opening.method} {opening.path!r}")
    endpoints = [
        JobEndpoint(index, port, attempt.token) for index, port in ports_of(endpoint, attempt.ports).items()
    ]
    identity = opening.path.partition("/")[0]
    if identity and endpoint.numbered:
        number = identity.partition("-")[0]
        endpoints = [target for target in endpoints if str(target.index) == number]
    if not endpoints:
        raise NoEndpoint(f"no job of attempt {opening.attempt_id} serves {opening.endpoint}/{opening.path}")
    return endpoints


class RelayClient:
    """Keeps the socket open. `attempts` returns the node's current attempts."""

    def __init__(
        self, server: str, credential: str, attempts: Callable[[], Sequence[DesiredAttempt]]
    ) -> None:
        self._url = "ws" + server.removeprefix("http") + "/ws/v1/tunnel"
        self._credential = credential
        self._attempts = attempts
        self._backoff = Backoff(initial=0.5, maximum=15.0)
        self._http = httpx.AsyncClient(
            trust_env=False,  # never send loopback traffic through a proxy
            timeout=httpx.Timeout(None, connect=JOB_CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
        )

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._serve_one_socket()
                except (WebSocketException, InvalidHandshake, InvalidURI, OSError, TimeoutError) as error:
                    wait = self._backoff.failed(None)
                    log.info(
                        "tunnel: connection failed, retrying in %.1f s: %s",
                        wait,
                        error or type(error).__name__,
                    )
                    await asyncio.sleep(wait)
        finally:
            await self._http.aclose()

    async def _serve_one_socket(self) -> None:
        local = is_loopback(urlsplit(self._url).hostname or "")
        async with connect(
            self._url,
            additional_headers={"Authorization": f"Bearer {self._credential}"},
            proxy=None if local else True,
            ssl=ssl.create_default_context() if self._url.startswith("wss:") else None,
            open_timeout=CONNECT_SECONDS,
            max_size=LONGEST_MESSAGE,
            compression=None,
        ) as socket:
            log.info("tunnel: connected")
            streams = Streams(socket, self._attempts, self._http)
            try:
                async for message in socket:
                    self._backoff.succeeded()
                    if isinstance(message, str):
                        raise BadFrame("a text message")
                    streams.receive(decode(message))
            except BadFrame as error:
                log.warning("tunnel: invalid frame from the control plane: %s", error)
            finally:
                await streams.close()
        raise ConnectionError(f"the socket was closed with {socket.close_code} {socket.close_reason}")


class Streams:
    """The streams of one socket. They end with it."""

    def __init__(
        self,
        socket: ClientConnection,
        attempts: Callable[[], Sequence[DesiredAttempt]],
        http: httpx.AsyncClient,
    ) -> None:
        self._socket = socket
        self._attempts = attempts
        self._http = http
        self._pipes: dict[str, Pipe] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._queue: asyncio.Queue[AnyFrame] = asyncio.Queue()  # bounded by the streams' credit
        self._sender = asyncio.create_task(self._send(), name="relay sender")

    def receive(self, frame: AnyFrame) -> None:
        pipe = self._pipes.get(frame.stream)
        if pipe is not None:
            pipe.deliver(frame)
        elif isinstance(frame, Open):
            self._open(frame)

    async def close(self) -> None:
        for task in [self._sender, *self._tasks.values()]:
            task.cancel()
        await asyncio.gather(self._sender, *self._tasks.values(), return_exceptions=True)

    def _open(self, opening: Open) -> None:
        stream = opening.stream
        endpoint = ENDPOINTS.get(opening.endpoint)
        pipe = Pipe(
            stream,
            emit=self._queue.put_nowait,
            ended=lambda: self._ended(stream),
            max_received_bytes=endpoint.request_bytes if endpoint else 0,
        )
        try:
            endpoints = endpoints_of(opening, self._attempts())
        except NoEndpoint as error:
            pipe.cancel("unavailable", str(error))
            return
        self._pipes[stream] = pipe
        task = self._tasks[stream] = asyncio.create_task(self._serve(opening, endpoints, pipe))
        task.add_done_callback(lambda _: self._tasks.pop(stream, None))

    def _ended(self, stream: str) -> None:
        """Cancel the request to the job if the caller cancelled the stream."""
        self._pipes.pop(stream, None)
        task = self._tasks.get(stream)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _serve(self, opening: Open, endpoints: list[JobEndpoint], pipe: Pipe) -> None:
        try:
            async with asyncio.timeout(STREAM_SECONDS):
                await self._forward(opening, endpoints, pipe)
        except Cancelled as error:
            log.debug("tunnel: %s ended early: %s", opening.path, error)
        except TimeoutError:
            pipe.cancel("timeout", f"a stream may last {STREAM_SECONDS:g} s at most")
        except httpx.ConnectError as error:
            pipe.cancel(
                "unavailable",
                f"{opening.endpoint} of the run refuses connections on its node: {error}",
            )
        except httpx.HTTPError as error:
            pipe.cancel("lost", f"the job ended the response early: {error or type(error).__name__}")
        finally:
            pipe.cancel("gone", "the agent closed the stream")  # no effect after a complete response

    async def _forward(self, opening: Open, endpoints: list[JobEndpoint], pipe: Pipe) -> None:
        endpoint = ENDPOINTS[opening.endpoint]
        # With several endpoints the body is buffered, so that it can be sent again.
        content = await _whole(pipe) if len(endpoints) > 1 else _parts(pipe)
        for target in endpoints:
            last = target is endpoints[-1]
            try:
                response = await self._http.send(
                    self._request(opening, endpoint, target, content), stream=True
                )
            except httpx.ConnectError:
                if last:
                    raise
                continue
            try:
                if response.status_code in REFUSED_HERE and not last:
                    continue
                pipe.write_head(
                    response.status_code, allowed(response.headers.items(), endpoint.response_headers)
                )
                async for part in response.aiter_raw():
                    await pipe.write(part)
                pipe.write_end()
                return
            finally:
                await response.aclose()

    def _request(
        self, opening: Open, endpoint: Endpoint, target: JobEndpoint, content: bytes | AsyncIterator[bytes]
    ) -> httpx.Request:
        headers = dict(allowed(opening.headers, endpoint.request_headers))
        path = f"{opening.endpoint}/{opening.path}".rstrip("/")
        return self._http.build_request(
            opening.method,
            f"http://127.0.0.1:{target.port}/{path}",
            headers={
                **headers,
                "accept-encoding": "identity",
                "authorization": f"Bearer {target.token}",
                "oolong-relay": "1",
            },
            content=content,
        )

    async def _send(self) -> None:
        while True:
            await self._socket.send(encode(await self._queue.get()))


async def _whole(pipe: Pipe) -> bytes:
    content = b""
    async for part in _parts(pipe):
        content += part
        if len(content) > MOST_REPEATED_BYTES:
            pipe.cancel("too_large", f"more than {MOST_REPEATED_BYTES} bytes in the request")
    return content


async def _parts(pipe: Pipe) -> AsyncIterator[bytes]:
    while (part := await pipe.read()) is not None:
        yield part
