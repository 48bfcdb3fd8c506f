"""Read sampled trajectories: filtered lists, and one of them token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q, QuerySet

from control_plane.core.api.errors import or_not_found
from control_plane.runs.models import Run
from control_plane.telemetry.compaction.trajectory_files import read_tokens
from control_plane.telemetry.models import TrajectorySample
from control_plane.telemetry.query.serializers import TrajectorySerializer


@dataclass(frozen=True, kw_only=True)
class Filter:
    step_from: int | None = None
    step_to: int | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    version: int | None = None  # a policy version between the oldest and the newest of its tokens
    span_min: int | None = None  # newest less oldest policy version of its tokens
    row: int | None = None
    attempt: int | None = None
    group: str = ""
    because: str = ""
    finish_reason: str = ""
    reward_result: str = ""
    text: str = ""  # in the prompt or the completion, case ignored


def query(run: Run, wanted: Filter) -> QuerySet[TrajectorySample]:
    rows = TrajectorySample.objects.filter(run=run).select_related("attempt")
    conditions = {
        "step__gte": wanted.step_from, "step__lte": wanted.step_to, "reward__gte": wanted.reward_min,
        "reward__lte": wanted.reward_max, "row": wanted.row, "attempt__number": wanted.attempt,
        "group_id": wanted.group or None, "low_version__lte": wanted.version, "high_version__gte": wanted.version,
        "finish_reason": wanted.finish_reason or None, "reward_result": wanted.reward_result or None,
        "sample_reasons__contains": [wanted.because] if wanted.because else None,
    }  # fmt: skip
    rows = rows.filter(**{name: value for name, value in conditions.items() if value is not None})
    if wanted.span_min is not None:
        rows = rows.filter(high_version__gte=F("low_version") + wanted.span_min)
    if wanted.text:
        rows = rows.filter(Q(prompt__icontains=wanted.text) | Q(completion__icontains=wanted.text))
    return rows


def get(run: Run, sample_id: str) -> dict[str, Any]:
    """The whole trajectory, with its tokens where the job told them."""
    rows = TrajectorySample.objects.select_related("attempt", "file").filter(run=run)
    is_number = sample_id.isascii() and sample_id.isdecimal() and len(sample_id) < 19
    sample = or_not_found(
        rows.filter(pk=int(sample_id)).first() if is_number else None, "trajectory of this run", sample_id
    )
    tokens = read_tokens(sample)
    # The lists of tokens are long and hold plain numbers already: they skip the serializer.
    return {
        **TrajectorySerializer.render(sample),
        "reward_text": sample.reward_text,
        "token_ids": tokens.token_ids if tokens else None,
        "logprobs": tokens.logprobs if tokens else None,
        "versions": tokens.versions if tokens else None,
        "token_chars": tokens.token_chars or None if tokens else None,
        "trainer_logprobs": tokens.trainer_logprobs or None if tokens else None,
        "advantages": tokens.advantages or None if tokens else None,
    }
