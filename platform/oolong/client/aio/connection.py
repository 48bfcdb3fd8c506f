"""Calls over one HTTP client: sent, sent again when that is safe, read into their types."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx

from oolong.client.async_primitives import PendingResponse, sleep
from oolong.client.errors import Unreachable
from oolong.client.models import Page
from oolong.client.request_spec import RequestSpec
from oolong.client.settings import ClientSettings
from oolong.client.transport import (
    LineReader,
    RetryPolicy,
    decode_response,
    error_answer,
    is_retryable,
    new_request,
    retry_after,
)

T = TypeVar("T")

CONNECT_SECONDS = 10.0


class AsyncConnection:
    def __init__(
        self,
        settings: ClientSettings,
        *,
        retries: RetryPolicy,
        timeout_seconds: float,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self.settings = settings
        self.retries = retries
        self._http = httpx.AsyncClient(
            base_url=f"{settings.url}/api/v1/",
            headers={"Authorization": f"Bearer {settings.token}"} if settings.token else {},
            timeout=httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS),
            transport=transport,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, spec: RequestSpec[T]) -> T:
        return await self.send_with(spec, lambda: None, timeout_seconds=None)

    async def send_with(
        self,
        spec: RequestSpec[T],
        body: Callable[[], AsyncIterator[bytes] | None],
        *,
        timeout_seconds: float | None,
    ) -> T:
        """Send a request with a streamed body; `body` opens it again for each try."""

        async def send() -> httpx.Response:
            return await self._http.send(
                new_request(self._http, spec, content=body(), timeout_seconds=timeout_seconds)
            )

        return decode_response(spec, await self._repeat(send, repeatable=spec.repeatable))

    async def pages(self, spec: RequestSpec[Page[T]]) -> AsyncIterator[T]:
        """Every item of a list, page after page."""
        while True:
            page = await self.send(spec)
            for found in page.data:
                yield found
            if not page.has_more:
                return
            spec = spec.with_params(cursor=page.next_cursor)

    @asynccontextmanager
    async def open(self, spec: RequestSpec[bytes], headers: dict[str, str]) -> AsyncIterator[httpx.Response]:
        """The answer as it comes. Raises the typed error when it is one, except 416."""
        request = new_request(self._http, spec, headers=headers)
        response = await self._http.send(request, stream=True)
        try:
            if not response.is_success and response.status_code != 416:
                await response.aread()
                raise error_answer(response)
            yield response
        finally:
            await response.aclose()

    async def lines(self, spec: RequestSpec[bytes], headers: dict[str, str]) -> AsyncGenerator[str, None]:
        """The answer line by line, as it comes; what follows the last line end is none."""
        reader = LineReader()
        async with self.open(spec, headers) as response:
            async for data in response.aiter_bytes():
                for line in reader.feed(data):
                    yield line

    async def _repeat(self, send: Callable[[], PendingResponse], *, repeatable: bool) -> httpx.Response:
        failures = 0
        while True:
            try:
                response = await send()
            except httpx.TransportError as error:
                failures += 1
                if not repeatable or failures >= self.retries.tries:
                    raise Unreachable(
                        f"{self.settings.url} does not answer: {error or type(error).__name__}"
                    ) from error
                wait = self.retries.wait(failures, None)
            else:
                failures += 1
                again = is_retryable(response, repeatable=repeatable)
                if not again or failures >= self.retries.tries:
                    return response
                wait = self.retries.wait(failures, retry_after(response))
            await sleep(wait)


class AsyncResource:
    """Base of one resource of the API: the requests of its methods go over the client's connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._send = connection.send
        self._pages = connection.pages
