"""Reads the bytes of an outbox file: lines that are understood, and the others with the reason why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from oolong.contracts.telemetry import (
    ENVIRONMENT,
    AnyLine,
    Histogram,
    Points,
    StateSnapshot,
    Summary,
    TrajectoryLine,
    decode_line,
)

LATEST_AT = 4_102_444_800.0  # the year 2100: a clock beyond it is broken
LARGEST_X = 2**53  # whole numbers up to it are exact in every JSON reader
LONGEST_NAME = 120
LONGEST_PART = 60  # of a job: "rank0", "engine"
MOST_TOKENS = 2**31 - 1  # of a trajectory


@dataclass(frozen=True)
class BadLine:
    offset: int  # of its first byte in the file
    reason: str


@dataclass(frozen=True)
class ReadLine:
    offset: int
    line: AnyLine


@dataclass
class Reading:
    good: list[ReadLine] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)


def read_lines(body: bytes, *, offset: int) -> Reading:
    """Take whole lines apart; `offset` is where `body` lies in its file. Empty lines are skipped."""
    reading = Reading()
    # Not splitlines: that would also cut at a carriage return.
    for text in body.removesuffix(b"\n").split(b"\n"):
        if text.strip():
            try:
                reading.good.append(ReadLine(offset, _read(text)))
            except (ValueError, RecursionError) as error:  # msgspec raises both
                reading.bad.append(BadLine(offset, str(error)))
        offset += len(text) + 1
    return reading


def _read(text: bytes) -> AnyLine:
    line = decode_line(text)
    if b"\\u0000" in text:
        # PostgreSQL holds every character but this one.
        line = msgspec.convert(_without_nul(msgspec.to_builtins(line)), type(line))
    _check(line)
    return line


def _check(line: AnyLine) -> None:
    if not 0 <= line.at <= LATEST_AT:
        raise ValueError(f"at={line.at!r} is no moment in unix seconds")
    if isinstance(line, Points | Histogram) and abs(line.x) > LARGEST_X:
        raise ValueError(f"x={line.x} is beyond 2**53")
    if isinstance(line, Points):
        if len(line.source) > LONGEST_PART:
            raise ValueError(f"source={line.source[:40]!r}… is longer than {LONGEST_PART} characters")
        for name in line.values:
            _check_name(name)
    if isinstance(line, TrajectoryLine):
        _check_tokens(line)
    if isinstance(line, Histogram | StateSnapshot | Summary):
        _check_name(line.name)


def _check_tokens(line: TrajectoryLine) -> None:
    if len(line.token_ids) != len(line.logprobs):
        raise ValueError(f"{len(line.token_ids)} token_ids and {len(line.logprobs)} logprobs; one for each")
    if line.token_ids and not 0 <= min(line.token_ids) <= max(line.token_ids) < 2**31:
        raise ValueError(f"token_ids from {min(line.token_ids)} to {max(line.token_ids)}: 0 to 2^31 - 1")
    versions, counts = line.policy_versions[0::2], line.policy_versions[1::2]
    if len(versions) != len(counts):
        raise ValueError(f"policy_versions has {len(line.policy_versions)} numbers; they come in pairs")
    if versions and not ENVIRONMENT <= min(versions) <= max(versions) <= LARGEST_X:
        raise ValueError(f"policy_versions from {min(versions)} to {max(versions)}: {ENVIRONMENT} to 2^53")
    if counts and (min(counts) < 0 or sum(counts) > MOST_TOKENS):
        raise ValueError(
            f"policy_versions counts {sum(counts)} tokens, {min(counts)} in one pair: 0 to 2^31 - 1"
        )
    if line.token_ids and sum(counts) != len(line.token_ids):
        raise ValueError(f"policy_versions counts {sum(counts)} tokens; token_ids has {len(line.token_ids)}")


def _check_name(name: str) -> None:
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(
            f"a name of {len(name)} characters ({name[:40]!r}…); 1 to {LONGEST_NAME} are allowed"
        )


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {_without_nul(name): _without_nul(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_nul(inner) for inner in value]
    return value
