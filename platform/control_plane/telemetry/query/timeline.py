"""Read the timeline of a run: the spans of a window, the longest when there are too many.

At least half of them may be loads, waits and train steps: the more numerous spans of rollouts do not displace them.
"""

from __future__ import annotations

from typing import Any

from django.db.models import F, Max, Min

from control_plane.runs.models import Job, Run
from control_plane.telemetry.models import RunSpan
from oolong.contracts.lifecycle import JobKind

DEFAULT_SPANS, MAX_SPANS = 2000, 10_000


def read(run: Run, *, first: float | None, last: float | None, limit: int) -> dict[str, Any]:
    """The spans that touch the window, by start. `first` and `last`: unix seconds; None: no bound."""
    spans = RunSpan.objects.filter(run=run)
    extent = spans.aggregate(start=Min("start"), end=Max("end"))
    if first is not None:
        spans = spans.filter(end__gte=first)
    if last is not None:
        spans = spans.filter(start__lte=last)
    window = spans.aggregate(sampled_groups=Max("sampled_groups"))
    longest = spans.order_by(F("start") - F("end"), "id")
    of_jobs = list(longest.filter(group_id="")[:limit])
    of_rollouts = list(longest.exclude(group_id="")[: max(limit - len(of_jobs), limit // 2)])
    kept = of_jobs[: limit - len(of_rollouts)] + of_rollouts
    lanes = (
        Job.objects.filter(attempt__run=run, kind__in=(JobKind.TRAINER, JobKind.ROLLOUT))
        .order_by("kind", "index", "name")
        .values_list("kind", "index", "name")
        .distinct()
    )
    return {
        "lanes": [name for _kind, _index, name in lanes],
        "start": extent["start"],
        "end": extent["end"],
        "left_out": spans.count() - len(kept) if len(kept) == limit else 0,
        "sampled_groups": window["sampled_groups"] or 1,
        "data": sorted(kept, key=lambda span: (span.start, span.pk)),
    }
