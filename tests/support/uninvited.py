"""Probe an attempt's ports as a job of another attempt: `python uninvited.py PORT…`. Needs only the standard library.

It finds listeners in /proc/net, as any process of the machine can, and sends requests without and with wrong
credentials. It prints every answer that is not a rejection as one line of JSON; {} means that no port answered.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - imported now: another uid may not read it later
import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65_534
LISTENS = "0A"
SECONDS = 10.0
REJECTIONS = (401, 403, 404, 405)  # the last two: unknown path or method
METHODS = (
    "claim", "renew", "submit", "fail", "release", "deregister", "load_claim", "ack", "evaluator", "state",
    "publish_version", "take", "snapshot", "probes", "stale_engine", "end", "evaluation_result", "evaluation_failed",
    "score", "execute", "attempt_clock",
)  # fmt: skip
ENGINE = (
    "generate", "health", "health_generate", "ready", "metrics", "model_info", "get_model_info", "server_info",
    "get_load", "v1/models", "v1/chat/completions", "flush_cache", "abort_request", "update_weights_from_disk",
    "pause_generation", "openapi.json", "docs", "start_profile",
)  # fmt: skip
SESSIONS = ("sessions", "sessions/s/v1/chat/completions", "sessions/s", "chat", "v1/completions", "")
CREDENTIALS = (
    "",
    "Authorization: Bearer wrong\r\n",
    "Authorization: Bearer \r\n",
    "Authorization: Bearer \xe9\r\n",
)
NO_BODY = "Content-Length: 0\r\nConnection: close\r\n"
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def listening() -> dict[int, set[str]]:
    """Port -> listening addresses of this network namespace."""
    found: dict[int, set[str]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == LISTENS:
                address, port = local.split(":")
                found.setdefault(int(port, 16), set()).add(_address(address))
    return found


def _address(text: str) -> str:
    words = struct.pack(f"={len(text) // 8}I", *(int(text[n : n + 8], 16) for n in range(0, len(text), 8)))
    return socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)


def abstract_sockets() -> set[str]:
    """Names of abstract unix sockets, which no directory protects."""
    fields = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {words[7] for words in fields if len(words) > 7 and words[7].startswith("@")}


def requests() -> Iterator[str]:
    for path in (*METHODS, *ENGINE, *SESSIONS):
        for method in ("GET", "POST", "OPTIONS"):
            for credential in CREDENTIALS:
                yield f"{method} /{path} HTTP/1.1\r\nHost: x\r\n{credential}{NO_BODY}\r\n"
    for path in ("v1/realtime", "", "sessions/s"):
        yield f"GET /{path} HTTP/1.1\r\nHost: x\r\n{UPGRADE}\r\n"


def answer(port: int, sent: bytes) -> bytes:
    """The first bytes of the reply; empty if the port does not reply or disconnects."""
    try:
        with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
            connection.sendall(sent)
            return connection.recv(400)
    except OSError:
        return b""


def status_of(reply: bytes) -> int:
    words = reply.split(b" ", 2)
    return int(words[1]) if reply.startswith(b"HTTP/1.") and len(words) > 1 and words[1].isdigit() else 0


def reached(port: int) -> list[str]:
    found = []
    for sent in requests():
        reply = answer(port, sent.encode("latin-1"))
        if reply and status_of(reply) not in REJECTIONS:
            found.append(f"{' '.join(sent.splitlines())[:120]} -> {reply[:60]!r}")
    return found


def main(ports: list[int]) -> dict[str, list[str]]:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    missing = [f"port {port} does not listen" for port in ports if port not in listening()]
    answers = {str(port): reached(port) for port in ports}
    return {name: what for name, what in {"missing": missing, **answers}.items() if what}


if __name__ == "__main__":
    print(json.dumps(main([int(port) for port in sys.argv[1:]])))
