"""One request to a receiver: bounded in time and bytes, to the number that was checked, with nothing of ours along."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from httpx import Client, HTTPError, Response, Timeout

from control_plane.common.outbound import AddressRefused, FetchFailed, Resolve, resolve
from control_plane.webhooks.address import check

SECONDS = 15.0  # for the whole of it
CONNECT_SECONDS = 5.0
EXCERPT_BYTES = 2000


@dataclass(frozen=True)
class Answer:
    status: int | None  # None: there was none
    milliseconds: int
    error: str = ""
    excerpt: str = ""

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    networks: Sequence[str],
    resolve: Resolve = resolve,
) -> Answer:
    """Send it once. Whatever goes wrong is in the answer."""
    began = time.monotonic()

    def answer(status: int | None, *, error: str = "", excerpt: bytes = b"") -> Answer:
        spent = int((time.monotonic() - began) * 1000)
        text = excerpt[:EXCERPT_BYTES].decode(errors="replace").replace("\x00", "�")
        return Answer(status, spent, error[:400], text)

    try:
        target = check(url, networks=networks, resolve=resolve)
    except (AddressRefused, FetchFailed) as error:
        return answer(None, error=str(error))
    timeout = Timeout(SECONDS, connect=CONNECT_SECONDS)
    with Client(trust_env=False, follow_redirects=False, timeout=timeout) as http:
        request = http.build_request(
            "POST", target.pinned_url, content=body,
            headers={
                **headers, "Host": target.host_header, "Content-Type": "application/json",
                "User-Agent": "oolong-webhooks", "Accept-Encoding": "identity",
            },
            extensions={"sni_hostname": target.host} if target.scheme == "https" else {},
        )  # fmt: skip
        try:
            response = http.send(request, stream=True)
        except HTTPError as error:
            return answer(None, error=f"{type(error).__name__}: {error}")
        try:
            excerpt = _beginning(response, until=began + SECONDS)
        except HTTPError as error:
            return answer(None, error=f"the answer broke off: {type(error).__name__}: {error}")
        finally:
            response.close()
    if 300 <= response.status_code < 400:
        return answer(response.status_code, error="redirects are not followed", excerpt=excerpt)
    return answer(response.status_code, excerpt=excerpt)


def _beginning(response: Response, *, until: float) -> bytes:
    """The first bytes of an answer; a receiver that drips is left."""
    excerpt = b""
    for chunk in response.iter_raw():
        excerpt += chunk
        if len(excerpt) >= EXCERPT_BYTES or time.monotonic() > until:
            break
    return excerpt
