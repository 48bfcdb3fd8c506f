"""What of a job can be reached through the relay, by whom, and what passes: everything else does not exist.

To add an endpoint (logs), add a line here, a port name in `ports_of`, and serve it in a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    scope: str  # a token needs it
    port: str  # ports of the attempt: "<port>-0", "<port>-1", ... by the job's index
    methods: frozenset[str]
    request_headers: frozenset[str]  # lower-case; others are left out, the caller's credential among them
    response_headers: frozenset[str]
    request_bytes: int
    response_bytes: int
    head_seconds: float  # from the request to the head of the answer
    idle_seconds: float  # between two parts of the answer
    browser: bool = False  # a session of the dashboard may use it too, not only a token
    numbered: bool = True  # what lies below it begins with the index of its job: sessions/1-ab12


ENDPOINTS: Mapping[str, Endpoint] = {
    "sessions": Endpoint(
        scope="sessions:write",
        port="session",
        methods=frozenset({"GET", "POST", "PUT"}),
        request_headers=frozenset({"accept", "content-type", "x-request-id"}),
        response_headers=frozenset({"content-type", "cache-control", "retry-after"}),
        request_bytes=4 * MIB,
        response_bytes=64 * MIB,
        head_seconds=900.0,  # one completion, interruptions and weight loads included
        idle_seconds=300.0,
    ),
    "playground": Endpoint(
        scope="runs:write",
        port="playground",
        methods=frozenset({"GET", "POST"}),
        request_headers=frozenset({"accept", "content-type", "x-request-id"}),
        response_headers=frozenset({"content-type", "cache-control", "retry-after"}),
        request_bytes=1 * MIB,
        response_bytes=16 * MIB,
        head_seconds=300.0,
        idle_seconds=120.0,
        browser=True,
        numbered=False,
    ),
}


def allowed(headers: Iterable[tuple[str, str]], names: frozenset[str]) -> list[tuple[str, str]]:
    """Those of the allow-list, once each, with values that cannot end a header line."""
    kept: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        plain = value.isascii() and value.isprintable() and len(value) <= 4096
        if lower in names and lower not in kept and plain:
            kept[lower] = value
    return list(kept.items())


def plain_path(path: str) -> bool:
    """Fit to be appended to a job's URL: letters, digits and -._/ only, and no step upwards."""
    letters = all(letter.isascii() and (letter.isalnum() or letter in "-._/") for letter in path)
    return (
        letters and len(path) <= 512 and not any(part in ("", ".", "..") for part in path.split("/") if path)
    )


def ports_of(endpoint: Endpoint, ports: Mapping[str, int]) -> dict[int, int]:
    """Ports of an attempt that serve the endpoint, by the index of their job."""
    prefix = f"{endpoint.port}-"
    found = {
        int(name.removeprefix(prefix)): port
        for name, port in ports.items()
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit()
    }
    return dict(sorted(found.items()))
