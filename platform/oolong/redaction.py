"""A job's secrets taken out of what it says, before that is written down anywhere.

Its output goes through `Redactor.feed` in its supervisor; its result and the lines of its outbox, which it writes
itself, through `text` in its own processes. This keeps accidents out of logs, a key in an error message or a dumped
configuration; it hides nothing from code that would send the value elsewhere, or write it in another form.

Standard library only: the per-job supervisor imports this module.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import quote

NAMES = "OOLONG_SECRETS"  # of a job's environment: the variables that hold secrets, with commas between
SHORTEST = 8  # characters; a shorter value would blot out ordinary words


class Redactor:
    """Each value, each longer line of it, and both as JSON and URLs write them, give way to `[secret NAME]`."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._mask_of: dict[bytes, bytes] = {}
        for name, value in values.items():
            for form in _forms(value):
                self._mask_of.setdefault(form, f"[secret {name}]".encode())
        # The longest first: of two forms that begin at one place the longer one is taken.
        forms = sorted(self._mask_of, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, forms))) if forms else None
        self._held = b""

    def redact(self, data: bytes) -> bytes:
        return self._pattern.sub(lambda found: self._mask_of[found[0]], data) if self._pattern else data

    def text(self, text: str) -> str:
        return self.redact(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def strings(self, document: object) -> object:
        """A JSON document with every string in it redacted; numbers and keys stay as they are."""
        if isinstance(document, str):
            return self.text(document)
        if isinstance(document, Mapping):
            return {key: self.strings(value) for key, value in document.items()}
        if isinstance(document, (list, tuple)):
            return [self.strings(value) for value in document]
        return document

    def found_in(self, data: bytes) -> bool:
        return self._pattern is not None and self._pattern.search(data) is not None

    def feed(self, data: bytes) -> bytes:
        """Return the part of a stream that is safe to write: all except a tail that may start a secret."""
        data = self._held + data
        written, begin = [], 0
        while True:
            held = self._may_begin(data, begin)
            found = self._pattern.search(data, begin) if self._pattern else None
            if found is None or found.start() >= held:
                break
            written += [data[begin : found.start()], self._mask_of[found[0]]]
            begin = found.end()
        self._held = data[held:]
        return b"".join([*written, data[begin:held]])

    def end(self) -> bytes:
        """Return the rest when the stream ends."""
        rest, self._held = self._held, b""
        return self.redact(rest)

    def _may_begin(self, data: bytes, begin: int) -> int:
        """Where the first end of `data` begins that could go on to be a secret; its length when there is none."""
        earliest = len(data)
        for form in self._mask_of:
            at = data.find(form[:1], max(begin, len(data) - len(form) + 1))
            while 0 <= at < earliest:
                if form.startswith(data[at:]):
                    earliest = at
                    break
                at = data.find(form[:1], at + 1)
        return earliest


def _forms(value: str) -> list[bytes]:
    """The spellings that are looked for. Without the blanks around: a line's end is never waited upon."""
    plain = [part.strip() for part in (value, *value.splitlines())]
    spelled = [
        form
        for text in plain
        for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text, safe=""))
    ]  # fmt: skip
    return [form.encode("utf-8", "surrogatepass") for form in dict.fromkeys(spelled) if len(form) >= SHORTEST]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The secrets that a job was started with."""
    names = environment.get(NAMES, "").split(",")
    return {name: environment[name] for name in names if environment.get(name)}


@cache
def of_this_job() -> Redactor:
    """Of the job that this process belongs to; it redacts nothing where the job has no secrets."""
    return Redactor(variables(os.environ))
