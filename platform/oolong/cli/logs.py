"""Printing the logs of a run's jobs, whole or as they grow."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass

import typer

from oolong.cli.exit_codes import of_run
from oolong.client import Client
from oolong.client.models import LogFile

FOLLOW_SECONDS = 1.0
TAIL_BYTES = 16 * 1024  # read first to find the last lines of a file; four times as much if they are longer


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|^Traceback|^\w+(?:Error|Exception):")


@dataclass(frozen=True)
class LineFilter:
    """Which lines of a followed log are printed."""

    pattern: re.Pattern[str] | None = None
    levels: tuple[str, ...] = ()  # any when empty

    @classmethod
    def made_of(cls, text: str, *, regex: bool, level: str | None) -> LineFilter:
        """Raises BadParameter for what is no pattern or no level."""
        if level is not None and level.upper() not in LEVELS:
            raise typer.BadParameter(f"{level!r}: {', '.join(LEVELS)}", param_hint="--level")
        try:
            pattern = re.compile(text if regex else re.escape(text), re.IGNORECASE) if text else None
        except re.error as error:
            raise typer.BadParameter(
                f"{text!r} is no regular expression: {error}", param_hint="--search"
            ) from error
        return cls(pattern, LEVELS[LEVELS.index(level.upper()) :] if level else ())

    def takes(self, line: str) -> bool:
        if self.pattern is not None and not self.pattern.search(line):
            return False
        return not self.levels or _level_of(line) in self.levels


def _level_of(line: str) -> str:
    found = _LEVEL.search(line[:200])
    if found is None:
        return ""
    return {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(found[1], found[1]) if found[1] else "ERROR"


EVERY_LINE = LineFilter()


class LogPrinter:
    """Remembers how far each file was printed; puts the job's name before each line when there are several."""

    def __init__(
        self,
        client: Client,
        run_id: str,
        *,
        job: str | None,
        tail_lines: int | None,
        wanted: LineFilter = EVERY_LINE,
    ) -> None:
        self._wanted = wanted
        self._client = client
        self._run_id = run_id
        self._job = job
        self._tail_lines = tail_lines
        self._offsets: dict[tuple[str, int], int] = {}
        self._to_skip: dict[tuple[str, int], int] = {}  # lines before the tail
        self._unfinished: dict[tuple[str, int], tuple[str, str]] = {}  # label, text of a line without its end

    def print_new(self) -> None:
        """Everything that came since the last call."""
        files = [
            file
            for file in self._client.runs.log_files(self._run_id)
            if self._job in (None, file.name, file.job)
        ]
        for file in files:
            self._print_file(file, prefix=self._job is None)

    def finish(self) -> None:
        """Lines that never got their end."""
        for key, (label, text) in self._unfinished.items():
            if text and not self._to_skip[key] and self._wanted.takes(text):
                sys.stdout.write(f"{label}{text}\n")
        sys.stdout.flush()

    def _print_file(self, file: LogFile, *, prefix: bool) -> None:
        key = (file.job, file.incarnation)
        label = f"{file.name} | " if prefix else ""
        if key not in self._offsets:
            self._offsets[key], self._to_skip[key] = self._first_line(file)
        while self._offsets[key] < file.bytes:
            part = self._client.runs.log_part(self._run_id, file, offset=self._offsets[key])
            if part.next_offset <= self._offsets[key]:
                break
            self._offsets[key] = part.next_offset
            *lines, rest = (self._unfinished.get(key, ("", ""))[1] + part.text).split("\n")
            skipped = min(self._to_skip[key], len(lines))
            self._to_skip[key] -= skipped
            for line in lines[skipped:]:
                if self._wanted.takes(line):
                    sys.stdout.write(f"{label}{line}\n")
            self._unfinished[key] = (label, rest)
        sys.stdout.flush()

    def _first_line(self, file: LogFile) -> tuple[int, int]:
        """The offset to read from, and how many lines after it precede the tail."""
        if self._tail_lines is None:
            return 0, 0
        size = TAIL_BYTES
        while True:
            start = offset = max(0, file.bytes - size)
            lines, last = 0, "\n"
            while offset < file.bytes:
                part = self._client.runs.log_part(self._run_id, file, offset=offset)
                if part.next_offset <= offset:
                    break
                offset = part.next_offset
                lines += part.text.count("\n")
                last = part.text[-1:] or last
            lines += last != "\n"
            # One line more than asked for: the first may be the end of a longer one.
            if start == 0 or lines > self._tail_lines:
                return start, max(0, lines - self._tail_lines)
            size *= 4


def print_logs(client: Client, run_id: str, *, job: str | None, tail_lines: int | None) -> None:
    printer = LogPrinter(client, run_id, job=job, tail_lines=tail_lines)
    printer.print_new()
    printer.finish()


def print_found(
    client: Client, run_id: str, text: str, *, regex: bool, level: str | None, job: str | None
) -> None:
    """Lines that the server finds, with the name of their job."""
    found = client.runs.search_logs(
        run_id, text, regex=regex, level=level.upper() if level else None, job=job
    )
    for line in found:
        sys.stdout.write(f"{line.name} | {line.text}\n" if job is None else f"{line.text}\n")
    sys.stdout.flush()


def follow_logs(
    client: Client, run_id: str, *, job: str | None, tail_lines: int | None, wanted: LineFilter = EVERY_LINE
) -> None:
    """Until the run has ended; exits as `oolong run wait` does."""
    printer = LogPrinter(client, run_id, job=job, tail_lines=tail_lines, wanted=wanted)
    while True:
        run = client.runs.get(run_id)  # asked first: what was logged before the end is then printed
        printer.print_new()
        if run.ended:
            printer.finish()
            raise typer.Exit(of_run(run))
        time.sleep(FOLLOW_SECONDS)
