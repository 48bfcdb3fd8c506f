"""Parse the bytes of an outbox file: lines that are valid, and the others with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from oolong.contracts.telemetry import (
    ENVIRONMENT,
    AnyLine,
    Histogram,
    Points,
    Spans,
    StateSnapshot,
    Summary,
    TrajectoryLine,
    decode_line,
)

MAX_TIMESTAMP = 4_102_444_800.0  # the year 2100: a clock beyond it is broken
MAX_X = 2**53  # whole numbers up to it are exact in every JSON reader
MAX_NAME_LENGTH = 120
MAX_PART_LENGTH = 60  # of a job: "rank0", "engine"
MAX_TOKENS = 2**31 - 1  # of a trajectory
MAX_MEMBER = 2**31 - 1  # of a group


@dataclass(frozen=True)
class BadLine:
    offset: int  # of its first byte in the file
    reason: str


@dataclass(frozen=True)
class ParsedLine:
    offset: int
    line: AnyLine


@dataclass
class ParsedChunk:
    """The whole lines of a chunk of an outbox file."""

    end: int  # offset behind the last whole line
    good: list[ParsedLine] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)

    def since(self, offset: int) -> ParsedChunk:
        """Without the lines that begin before `offset`."""
        return ParsedChunk(
            self.end,
            [line for line in self.good if line.offset >= offset],
            [line for line in self.bad if line.offset >= offset],
        )


def parse_lines(body: bytes, *, offset: int) -> ParsedChunk:
    """Parse the whole lines of `body`, which begins at byte `offset` of its file. Skip empty lines."""
    whole = body[: body.rfind(b"\n") + 1]
    parsed = ParsedChunk(offset + len(whole))
    # Not splitlines: that also splits at a carriage return.
    for text in whole.split(b"\n"):
        if text.strip():
            try:
                parsed.good.append(ParsedLine(offset, _parse(text)))
            except (ValueError, RecursionError) as error:  # msgspec raises both
                parsed.bad.append(BadLine(offset, str(error)))
        offset += len(text) + 1
    return parsed


def _parse(text: bytes) -> AnyLine:
    line = decode_line(text)
    if b"\\u0000" in text:
        # PostgreSQL stores every character but this one.
        line = msgspec.convert(_without_nul(msgspec.to_builtins(line)), type(line))
    _check(line)
    return line


def _check(line: AnyLine) -> None:
    if not 0 <= line.at <= MAX_TIMESTAMP:
        raise ValueError(f"at={line.at!r} is not a time in unix seconds")
    if isinstance(line, Points | Histogram) and abs(line.x) > MAX_X:
        raise ValueError(f"x={line.x} is beyond 2**53")
    if isinstance(line, Points):
        if len(line.source) > MAX_PART_LENGTH:
            raise ValueError(f"source={line.source[:40]!r}… is longer than {MAX_PART_LENGTH} characters")
        for name in line.values:
            _check_name(name)
    if isinstance(line, TrajectoryLine):
        _check_tokens(line)
    if isinstance(line, Spans):
        _check_spans(line)
    if isinstance(line, Histogram | StateSnapshot | Summary):
        _check_name(line.name)


def _check_spans(line: Spans) -> None:
    if not 1 <= line.sampled_groups <= MAX_MEMBER:
        raise ValueError(f"sampled_groups={line.sampled_groups}: 1 to 2^31 - 1")
    for span in line.spans:
        if not 0 <= span.start <= span.end <= MAX_TIMESTAMP:
            raise ValueError(f"a span from {span.start!r} to {span.end!r}: unix seconds, in this order")
        if not -1 <= span.version <= MAX_X or not -1 <= span.member <= MAX_MEMBER:
            raise ValueError(f"a span of version {span.version} and member {span.member}: -1 is the lowest")
        if len(span.group_id) > MAX_NAME_LENGTH:
            raise ValueError(f"group_id={span.group_id[:40]!r}… is longer than {MAX_NAME_LENGTH} characters")


def _check_tokens(line: TrajectoryLine) -> None:
    if len(line.token_ids) != len(line.logprobs):
        raise ValueError(
            f"{len(line.token_ids)} token_ids and {len(line.logprobs)} logprobs; there must be one for each"
        )
    if line.token_ids and not 0 <= min(line.token_ids) <= max(line.token_ids) < 2**31:
        raise ValueError(f"token_ids from {min(line.token_ids)} to {max(line.token_ids)}: 0 to 2^31 - 1")
    if line.token_chars and len(line.token_chars) != len(line.token_ids):
        raise ValueError(
            f"{len(line.token_chars)} token_chars and {len(line.token_ids)} token_ids; one for each, or none"
        )
    if line.token_chars and not 0 <= min(line.token_chars) <= max(line.token_chars) < 2**31:
        raise ValueError(
            f"token_chars from {min(line.token_chars)} to {max(line.token_chars)}: 0 to 2^31 - 1"
        )
    for name, values in (("trainer_logprobs", line.trainer_logprobs), ("advantages", line.advantages)):
        if values and len(values) != len(line.token_ids):
            raise ValueError(
                f"{len(values)} {name} and {len(line.token_ids)} token_ids; one for each, or none"
            )
    versions, counts = line.policy_versions[0::2], line.policy_versions[1::2]
    if len(versions) != len(counts):
        raise ValueError(f"policy_versions has {len(line.policy_versions)} numbers; they come in pairs")
    if versions and not ENVIRONMENT <= min(versions) <= max(versions) <= MAX_X:
        raise ValueError(f"policy_versions from {min(versions)} to {max(versions)}: {ENVIRONMENT} to 2^53")
    if counts and (min(counts) < 0 or sum(counts) > MAX_TOKENS):
        raise ValueError(
            f"policy_versions counts {sum(counts)} tokens, {min(counts)} in one pair: 0 to 2^31 - 1"
        )
    if line.token_ids and sum(counts) != len(line.token_ids):
        raise ValueError(f"policy_versions counts {sum(counts)} tokens; token_ids has {len(line.token_ids)}")


def _check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise ValueError(
            f"a name of {len(name)} characters ({name[:40]!r}…); 1 to {MAX_NAME_LENGTH} are allowed"
        )


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {_without_nul(name): _without_nul(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_nul(inner) for inner in value]
    return value
