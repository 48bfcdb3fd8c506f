"""One request to a receiver: bounded in time and bytes, to the address that was checked, without credentials."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from httpx import Client, HTTPError, ReadTimeout, Response, Timeout

from control_plane.webhooks.url_policy import parse_webhook_url, webhook_policy
from oolong.system.safe_http import AddressBlocked, CheckedTransport, Resolve, resolve_name
from oolong.system.socket_deadline import close_after

SECONDS = 5.0  # for the whole of it, from the name to the end of the answer
CONNECT_SECONDS = 3.0
EXCERPT_BYTES = 2000


@dataclass(frozen=True)
class DeliveryResponse:
    status: int | None  # None: there was none
    milliseconds: int
    error: str = ""
    excerpt: str = ""

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def failure(error: str, *, milliseconds: int = 0) -> DeliveryResponse:
    return DeliveryResponse(None, milliseconds, _postgres_text(error)[:400])


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    networks: Sequence[str],
    resolve: Resolve = resolve_name,
) -> DeliveryResponse:
    """Send it once. Whatever goes wrong is in the answer."""
    began = time.monotonic()

    def answer(status: int | None, *, error: str = "", excerpt: bytes = b"") -> DeliveryResponse:
        spent = int((time.monotonic() - began) * 1000)
        text = _postgres_text(excerpt[:EXCERPT_BYTES].decode(errors="replace"))
        return DeliveryResponse(status, spent, _postgres_text(error)[:400], text)

    with (
        close_after(SECONDS) as cut,
        Client(
            trust_env=False,
            follow_redirects=False,
            timeout=Timeout(SECONDS, connect=CONNECT_SECONDS),
            transport=CheckedTransport(webhook_policy(networks), resolve=resolve),
        ) as http,
    ):
        try:
            request = http.build_request(
                "POST", parse_webhook_url(url), content=body, extensions={"trace": cut.watch},
                headers={
                    **headers, "Content-Type": "application/json", "User-Agent": "oolong-webhooks",
                    "Accept-Encoding": "identity",
                },
            )  # fmt: skip
            response = http.send(request, stream=True)
        except AddressBlocked as error:
            return answer(None, error=str(error))
        except HTTPError as error:
            if cut.done.is_set() or isinstance(error, ReadTimeout):
                return answer(None, error=f"there was no answer within {SECONDS:g} s")
            return answer(None, error=f"{type(error).__name__}: {error}")
        try:
            excerpt = _read_excerpt(response)
        except HTTPError as error:
            if not cut.done.is_set():
                return answer(None, error=f"the answer broke off: {type(error).__name__}: {error}")
        finally:
            response.close()
        if cut.done.is_set():  # which may look like its end
            return answer(None, error=f"the answer did not end within {SECONDS:g} s")
    if 300 <= response.status_code < 400:
        return answer(response.status_code, error="redirects are not followed", excerpt=excerpt)
    return answer(response.status_code, excerpt=excerpt)


def _read_excerpt(response: Response) -> bytes:
    excerpt = b""
    for chunk in response.iter_raw():
        excerpt += chunk
        if len(excerpt) >= EXCERPT_BYTES:
            break
    return excerpt


def _postgres_text(text: str) -> str:
    """PostgreSQL keeps no NUL and no half of a surrogate pair."""
    return text.encode(errors="replace").decode().replace("\x00", "\ufffd")
