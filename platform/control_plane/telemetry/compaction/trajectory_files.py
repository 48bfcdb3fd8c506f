"""Tokens of sampled trajectories move from the database into Parquet files of the blob store, off the path of ingest.

A tick takes what waits of a run, writes a file, reads it back, and then, in one transaction, names the file in the
samples' rows and deletes what waited. Killed before that it leaves a file that no row names, and writes another one.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from django.db import transaction
from django.db.models import Count, Min

from control_plane.assets.storage import store
from control_plane.core.infra.isolate_errors import isolate_errors
from control_plane.telemetry.models import TrajectoryFile, TrajectorySample, TrajectoryTokens
from oolong.contracts.telemetry import ENVIRONMENT

FILE_SAMPLES = 256
MIN_FILE_SAMPLES = 64  # samples make a file at once; fewer wait for
MAX_WAIT = timedelta(minutes=2)
ROW_GROUP_SIZE = 16  # what is read to show one trajectory

_SCHEMA = pa.schema(
    [
        ("sample", pa.int64()),
        ("attempt", pa.int32()),
        ("step", pa.int64()),
        ("group_id", pa.string()),
        ("member", pa.int32()),
        ("row", pa.int64()),
        ("prompt", pa.string()),
        ("answer", pa.string()),
        ("completion", pa.string()),
        ("reward", pa.float64()),
        ("score", pa.float64()),
        ("reward_parts", pa.map_(pa.string(), pa.float64())),
        ("finish_reason", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("versions", pa.list_(pa.int64())),
        ("token_chars", pa.list_(pa.int32())),
        ("trainer_logprobs", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),
    ]
)


class FileMismatch(Exception):
    """The file differs from the rows. The rows stay in the database."""


@dataclass(frozen=True)
class Tokens:
    """Of one trajectory, all as long as its completion."""

    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]  # -1 where the environment wrote
    token_chars: list[int]  # characters of the completion that each token begins; empty where not known
    # Of the trainer; None where a token was not trained, empty where nothing was recorded.
    trainer_logprobs: list[float | None]
    advantages: list[float | None]


def write_pending_files(*, now: datetime) -> int:
    """One file for each run in which enough waits, or some has waited for long; returns how many files."""
    waiting = (
        TrajectoryTokens.objects.values("sample__run_id")
        .annotate(samples=Count("pk"), oldest=Min("sample__at"))
        .order_by("sample__run_id")
    )
    written = 0
    for run in waiting:
        if run["samples"] >= MIN_FILE_SAMPLES or run["oldest"] < now - MAX_WAIT:
            # An error of one run does not stop the others; its samples wait for the next tick.
            with isolate_errors(f"writing the trajectories of run {run['sample__run_id']}"):
                _write_file(run["sample__run_id"], now=now)
                written += 1
    return written


def read_tokens(sample: TrajectorySample) -> Tokens | None:
    """None if the job did not report them because there were too many."""
    waiting = TrajectoryTokens.objects.filter(pk=sample.pk).first()
    if waiting is not None:
        return _decode_tokens(sample, waiting)
    if sample.file is None or sample.file_row is None:
        return None
    with store.open_blob(sample.file.sha256) as blob, pq.ParquetFile(blob) as file:
        columns = {"sample", *(field.name for field in fields(Tokens))} & set(file.schema_arrow.names)
        group = file.read_row_group(sample.file_row // ROW_GROUP_SIZE, columns=sorted(columns))
    [row] = group.slice(sample.file_row % ROW_GROUP_SIZE, 1).to_pylist()
    if row["sample"] != sample.pk:
        raise FileMismatch(
            f"row {sample.file_row} of {sample.file.sha256} is {row['sample']}, not {sample.pk}"
        )
    # Older files lack the newer columns.
    return Tokens(**{field.name: row.get(field.name) or [] for field in fields(Tokens)})


def _write_file(run_id: str, *, now: datetime) -> None:
    samples = list(
        TrajectorySample.objects.filter(run_id=run_id, waiting_tokens__isnull=False)
        .select_related("waiting_tokens", "attempt")
        .order_by("pk")[:FILE_SAMPLES]
    )
    table = pa.Table.from_pylist([_row(sample) for sample in samples], schema=_SCHEMA)
    written = io.BytesIO()
    pq.write_table(table, written, compression="zstd", row_group_size=ROW_GROUP_SIZE)
    blob = store.put([written.getvalue()])
    with store.open_blob(blob.sha256) as stored:
        if not pq.read_table(stored).equals(table):
            raise FileMismatch(
                f"{blob.sha256} of run {run_id} came back otherwise; the samples stay in the database"
            )
    with transaction.atomic():
        store.lock_blob(blob.sha256)
        file = TrajectoryFile.objects.create(
            run_id=run_id, sha256=blob.sha256, bytes=blob.bytes, samples=len(samples), created_at=now
        )
        for number, sample in enumerate(samples):
            sample.file, sample.file_row = file, number
        TrajectorySample.objects.bulk_update(samples, ["file", "file_row"])
        TrajectoryTokens.objects.filter(pk__in=[sample.pk for sample in samples]).delete()


def _row(sample: TrajectorySample) -> dict[str, Any]:
    tokens = _decode_tokens(sample, sample.waiting_tokens)
    return {
        "sample": sample.pk, "attempt": sample.attempt.number, "step": sample.step, "group_id": sample.group_id,
        "member": sample.member, "row": sample.row, "prompt": sample.prompt, "answer": sample.answer,
        "completion": sample.completion, "reward": sample.reward, "score": sample.score,
        "reward_parts": list(sample.reward_parts.items()), "finish_reason": sample.finish_reason,
        "token_ids": tokens.token_ids, "logprobs": tokens.logprobs, "versions": tokens.versions,
        "token_chars": tokens.token_chars, "trainer_logprobs": tokens.trainer_logprobs,
        "advantages": tokens.advantages,
    }  # fmt: skip


def _decode_tokens(sample: TrajectorySample, waiting: TrajectoryTokens) -> Tokens:
    token_ids: list[int] = np.frombuffer(bytes(waiting.token_ids), dtype="<i4").tolist()
    logprobs: list[float] = np.frombuffer(bytes(waiting.logprobs), dtype="<f4").tolist()
    token_chars: list[int] = np.frombuffer(bytes(waiting.token_chars), dtype="<i4").tolist()
    versions = expand_versions(sample.policy_versions, len(token_ids))
    return Tokens(
        token_ids=token_ids,
        logprobs=logprobs,
        versions=versions,
        token_chars=token_chars,
        trainer_logprobs=_numbers_or_none(waiting.trainer_logprobs),
        advantages=_numbers_or_none(waiting.advantages),
    )


def _numbers_or_none(values: bytes | memoryview[int]) -> list[float | None]:
    numbers = np.frombuffer(bytes(values), dtype="<f4")
    return [None if math.isnan(number) else number for number in numbers.tolist()]


def expand_versions(pairs: list[int], length: int) -> list[int]:
    """Run-length pairs as one version a token. Tokens that no pair tells of are the environment's."""
    versions: list[int] = []
    for version, count in zip(pairs[0::2], pairs[1::2], strict=False):
        versions += [version] * min(count, length - len(versions))
    return versions + [ENVIRONMENT] * (length - len(versions))
