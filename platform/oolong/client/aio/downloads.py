"""Bytes on their way into a file, going on where a broken connection ended."""

from __future__ import annotations

import httpx

from oolong.client.aio.connection import AsyncConnection
from oolong.client.async_primitives import sleep
from oolong.client.downloads import PartialDownload
from oolong.client.errors import ServerError, Unreachable
from oolong.client.request_spec import RequestSpec


async def download(connection: AsyncConnection, spec: RequestSpec[bytes], file: PartialDownload) -> None:
    failures = 0
    while not file.complete:
        try:
            async with connection.open(spec, file.headers()) as response:
                if not file.begin(response.status_code, response.headers):
                    continue
                async for chunk in response.aiter_bytes():
                    file.write(chunk)
                    failures = 0
        except (httpx.HTTPError, ServerError) as error:
            failures += 1
            if failures >= connection.retries.tries:
                raise Unreachable(f"GET {spec.path}: {error or type(error).__name__}") from error
            await sleep(connection.retries.wait(failures, None))
    file.finish()
