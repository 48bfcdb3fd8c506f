"""Outbox lines: what jobs leave in `<job directory>/outbox/*.jsonl` and agents ship to the control plane.

One JSON object per line, tagged by `type`. A file is only ever appended to, by one process; its name is
`<anything>-<incarnation>.jsonl`. A series is (run, attempt, name, source, axis); a point's key is
(series, x): sending it again changes nothing, the same key with another value is a counted conflict.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from oolong.redaction import of_this_job
from oolong.untrusted import clean_text

LONGEST_TOKENS = (
    16_384  # of a sampled trajectory whose tokens are listed: a line must fit one telemetry batch
)
ENVIRONMENT = -1  # in place of a policy version: not sampled, and not trained on


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    at: float = 0.0  # unix seconds when it was written


class Points(Line, frozen=True, kw_only=True, tag="points"):
    """Several metrics at one x. Absent means not measured; never write 0 or NaN for that. null is what JSON makes of a
    NaN or an infinity: measured, and not finite."""

    axis: Literal[
        "step", "time"
    ]  # train step (sft, dpo: optimizer step), or whole seconds since the attempt began
    x: int
    values: Mapping[str, float | None]  # metric name -> value; names are in contracts.metrics
    source: str = ""  # "" for the job itself, else "rank0", "engine"


class Histogram(Line, frozen=True, kw_only=True, tag="histogram"):
    name: str  # staleness/consumed_tokens ...
    x: int
    counts: dict[str, int]  # bucket label -> count; buckets are whole numbers as text


class CheckpointLine(Line, frozen=True, kw_only=True, tag="checkpoint"):
    """A committed checkpoint, LOCAL on its node. The agent uploads it; the server then marks it STORED."""

    step: int  # policy version
    directory: str  # absolute, on the node
    manifest_sha256: str
    bytes: int
    final: bool = False  # the last one of the attempt


class TrajectoryLine(Line, frozen=True, kw_only=True, tag="trajectory"):
    """A sample for the trajectory browser (one group in `sampled_one_of`)."""

    step: int
    group_id: str
    prompt: str
    answer: str
    completion: str
    reward: float
    # Run-length pairs flattened: version, count of tokens, version, count ... ENVIRONMENT instead of a version where
    # the environment wrote the tokens.
    policy_versions: list[int]
    version_texts: list[
        str
    ] = []  # the decoded text of each pair, in order; empty where it was not worked out
    finish_reason: str
    reward_parts: dict[str, float] = {}  # of a composite reward: each part's own score
    reward_result: str = ""  # the reward function's own word: exact, wrong_answer, time_limit ...
    reward_text: str = ""  # what a judge wrote
    sample_reasons: list[str] = []  # group, highest_reward, lowest_reward, longest, widest_span
    row: int = -1  # of the dataset; -1 where it was not told
    member: int = 0  # of the group, 0-based
    score: float | None = None  # the reward function's own value, before scale and bias
    token_ids: list[int] = []  # [T] completion; empty when longer than LONGEST_TOKENS
    logprobs: list[float] = []  # [T] of the sampling distribution; 0 where the environment wrote
    token_chars: list[
        int
    ] = []  # [T] characters of `completion` that each token begins; empty where not known
    # [T] of the trainer: log-probability under the policy that the step began with, and advantage. None where a token
    # was not trained; empty where nothing was recorded.
    trainer_logprobs: list[float | None] = []
    advantages: list[float | None] = []
    timeline: dict[str, float] = {}  # generate_seconds, reward_seconds, interruptions, turns, tool_calls


class Progress(Line, frozen=True, kw_only=True, tag="progress"):
    phase: str  # warm_start, reference, rollout, train, evaluate, checkpoint, boot
    done: int
    total: int
    message: str = ""


class StateSnapshot(Line, frozen=True, kw_only=True, tag="state"):
    """A live document of the run by name; the newest wins. `pipeline`: gate, ledger, stages (see metrics)."""

    name: str
    value: dict[str, Any]


class Summary(Line, frozen=True, kw_only=True, tag="summary"):
    """A closing measurement of a job, kept with the run under `name`; the newest attempt wins."""

    name: str
    value: dict[str, Any]


SpanKind = Literal["generate", "reward", "load", "wait", "evaluate", "train", "publish", "checkpoint"]
SpanOutcome = Literal["", "finished", "interrupted", "lost"]


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an engine, one of its rollouts, or the trainer does from `start` to `end`. The job is its lane."""

    kind: SpanKind
    start: float  # unix seconds
    end: float
    version: int = (
        -1
    )  # policy version that generates, that is loaded, or that the train step produces; -1: none
    group_id: str = ""
    member: int = -1  # of the group
    outcome: SpanOutcome = ""  # of a generation: interrupted by a load or abort, and resumed from its tokens


class Spans(Line, frozen=True, kw_only=True, tag="spans"):
    """Spans of the run's timeline, a report's worth in one line."""

    spans: list[Span]
    sampled_groups: int = 1  # one of so many groups was recorded


class Note(Line, frozen=True, kw_only=True, tag="note"):
    """Something a person should see among the run's events: an engine restarted, an engine turned STALE."""

    kind: str
    message: str


AnyLine = (
    Points | Histogram | CheckpointLine | TrajectoryLine | Progress | StateSnapshot | Summary | Spans | Note
)

decode_line = msgspec.json.Decoder(AnyLine).decode


def _encoded(line: AnyLine) -> bytes:
    """As UTF-8: a half character in what code of users or the policy wrote is replaced, and its line is kept."""
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(line)))


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value, max_characters=len(value))
    if isinstance(value, Mapping):
        return {_without_surrogates(name): _without_surrogates(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in value]
    return value


class Outbox:
    """Append-only writer of one outbox file, in whole lines: a reader takes what ends in a newline."""

    def __init__(self, job_directory: str | Path, incarnation: int, name: str = "main") -> None:
        directory = Path(job_directory) / "outbox"
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"{name}-{incarnation}.jsonl"
        self._file: IO[bytes] = self._path.open("ab", buffering=0)

    def write(self, line: AnyLine) -> None:
        if not line.at:
            line = msgspec.structs.replace(line, at=time.time())
        data = _encoded(line)
        if (redactor := of_this_job()).found_in(data):
            data = msgspec.json.encode(redactor.strings(msgspec.json.decode(data)))
        data += b"\n"
        written = os.write(self._file.fileno(), data)
        if written != len(data):
            raise OSError(f"outbox {self._path}: wrote {written} of {len(data)} bytes; is the disk full?")

    def close(self) -> None:
        self._file.close()
