"""Requests to the identity provider, which allauth sends with a session of `requests`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import httpx
from requests import ConnectionError as RequestFailed
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from control_plane.config import Oidc
from oolong.system.safe_http import AddressBlocked, CheckedTransport, EndpointPolicy, parse_url
from oolong.system.socket_deadline import close_after

MAX_BYTES = 1 << 20  # of one answer: discovery, keys or tokens


def provider_session(oidc: Oidc, *, seconds: float) -> Session:
    """A session for the provider's own addresses and public ones. Each request ends within `seconds`."""
    policy = EndpointPolicy(
        oidc.issuer, frozenset(oidc.hosts), "; to allow it, add {host} to OOLONG_OIDC_HOSTS"
    )
    session = Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, CheckedAdapter(policy, seconds=seconds))
    return session


class CheckedAdapter(BaseAdapter):
    """Sends each request of a session, a redirected one too, through the checked transport."""

    def __init__(self, policy: EndpointPolicy, *, seconds: float) -> None:
        super().__init__()
        self._policy, self._seconds = policy, seconds

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        """`verify` is the CA bundle that `requests` takes from the environment; proxies come from there too."""
        tls = ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify
        transport = CheckedTransport(self._policy, direct=httpx.HTTPTransport(verify=tls), through_proxy=True)
        with (
            close_after(self._seconds) as cut,
            httpx.Client(transport=transport, timeout=self._seconds) as http,
        ):
            try:
                answer = http.build_request(
                    str(request.method), parse_url(str(request.url)), content=request.body,  # type: ignore[arg-type]  # a form
                    headers={name: str(value) for name, value in request.headers.items()},
                    extensions={"trace": cut.watch},
                )  # fmt: skip
                received = http.send(answer, stream=True)
                if request.method == "POST" and received.has_redirect_location:
                    raise RequestFailed(
                        f"{request.url} redirects, and would take the client secret elsewhere"
                    )
                return _response(request, received, _read(received))
            except AddressBlocked as error:
                raise RequestFailed(str(error), request=request) from error
            except httpx.HTTPError as error:
                why = f"no answer within {self._seconds:g} s" if cut.done.is_set() else str(error)
                raise RequestFailed(f"{request.url}: {why}", request=request) from error

    def close(self) -> None:
        """Each request closes its own connection."""


def _read(received: httpx.Response) -> bytes:
    body = b""
    for chunk in received.iter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            raise httpx.ReadError(f"more than {MAX_BYTES} bytes")
    return body


def _response(request: PreparedRequest, received: httpx.Response, body: bytes) -> Response:
    response = Response()
    response.status_code, response.reason = received.status_code, received.reason_phrase
    response.headers = CaseInsensitiveDict(received.headers.items())
    response.url, response.request, response.encoding = str(request.url), request, received.encoding
    response._content = body
    return response
