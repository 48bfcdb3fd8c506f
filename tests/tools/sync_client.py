"""Writes the synchronous client from the asynchronous one: `python tests/tools/sync_client.py`.

The two say the same, so one of them is written by hand: `oolong/client/aio`. This takes the waiting out of its
words, token by token, and a test compares what is committed in `oolong/client/sync` with what this would write.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "platform" / "oolong" / "client"
BY_HAND = ("__init__.py", "waiting.py")  # each client has its own

# What is not said by leaving out "async", "await" and the prefix Async.
WORDS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aclosing": "closing",
    "aread": "read",
    "aiter_lines": "iter_lines",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
    "asynchronous": "synchronous",
    "Awaitable[httpx.Response]": "httpx.Response",
    "oolong.client.aio": "oolong.client.sync",
}
_WORD = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, WORDS))})(?!\w)|(?<=\.)a\w+\b")


def synchronous(text: str) -> str:
    """The text of a module of `aio` as it reads without waiting; not yet formatted."""
    text = re.sub(r"\b(?:async|await) ", "", text)
    text = re.sub(r"\bAsync(?=[A-Z])", "", text)
    text = re.sub(r"^from collections\.abc import .*$", _without_awaitable, text, flags=re.MULTILINE)
    return _WORD.sub(lambda found: WORDS.get(found[0], found[0]), text)


def files() -> dict[str, str]:
    """File name in `sync` -> text."""
    return {
        path.name: _formatted(synchronous(path.read_text()), path.name)
        for path in sorted((CLIENT / "aio").glob("*.py"))
        if path.name not in BY_HAND
    }


def _without_awaitable(line: re.Match[str]) -> str:
    return re.sub(r"\bAwaitable, |, Awaitable\b", "", line[0])


def _formatted(text: str, name: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--fix", "--unsafe-fixes", "--exit-zero", "--quiet"], ["format"]):
        text = subprocess.run(
            [ruff, *command, "--stdin-filename", str(CLIENT / "sync" / name), "-"],
            input=text, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    return text


def write() -> None:
    written = files()
    for stale in (CLIENT / "sync").glob("*.py"):
        if stale.name not in written and stale.name not in BY_HAND:
            stale.unlink()
    for name, text in written.items():
        (CLIENT / "sync" / name).write_text(text)


if __name__ == "__main__":
    write()
