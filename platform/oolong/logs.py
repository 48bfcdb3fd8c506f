"""Log lines of our processes: one JSON object a line, or plain text for a person at a terminal.

Standard library only: control plane, agent and jobs write the same shape. What a line is about (request, run,
attempt, trace) is bound once with `about` and stands in every line that is written inside.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TextIO

_NOTHING: Mapping[str, str] = MappingProxyType({})
_about: ContextVar[Mapping[str, str]] = ContextVar("oolong_log_about", default=_NOTHING)

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")

# What every record has by itself; everything else was given with `extra=`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def about(**subjects: str) -> Iterator[None]:
    """Name what the lines inside are about: `with about(run=run.pk, attempt=attempt.pk):`. Empty ones are left out."""
    token = _about.set({**_about.get(), **{name: value for name, value in subjects.items() if value}})
    try:
        yield
    finally:
        _about.reset(token)


def subjects() -> Mapping[str, str]:
    """Subjects of the current log lines."""
    return _about.get()


class JsonLines(logging.Formatter):
    """`{"at", "level", "logger", "message", "service", …subjects, …extra, "error"}`; never more than one line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self.service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "service": self.service,
            **_about.get(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN and name not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, default=str, ensure_ascii=False)


class TextLines(logging.Formatter):
    """The same for people: time, level, logger, message, and what it is about in brackets.

    What a stranger put into a message stays in its line and moves no cursor.
    """

    def format(self, record: logging.LogRecord) -> str:
        named = " ".join(f"{name}={value}" for name, value in _about.get().items())
        head = f"{_moment(record.created)} {record.levelname} {record.name} {record.getMessage()}"
        text = _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], f"{head} [{named}]" if named else head)
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        return text


def formatter(service: str, form: str = "", *, stream: TextIO | None = None) -> logging.Formatter:
    """`form` is json or text (OOLONG_LOG_FORMAT); empty: text at a terminal, JSON elsewhere."""
    if form not in ("", "json", "text"):
        raise ValueError(f"OOLONG_LOG_FORMAT={form!r}: json, text, or unset")
    as_text = form == "text" or (form == "" and (stream or sys.stderr).isatty())
    return TextLines() if as_text else JsonLines(service)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
