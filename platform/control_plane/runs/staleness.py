"""Configured against realized staleness of a run."""

from __future__ import annotations

from typing import Any

from control_plane.runs.models import Run
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec

REMEDY = {
    "keep": "on_straggler is keep, which trains on them. To enforce the limit set staleness.on_straggler to wait (the "
    "trainer waits for stragglers) or drop (their tokens are lost), or raise staleness.max.",
    "drop": "on_straggler is drop, which should have dropped them: please report this bug.",
    "wait": "on_straggler is wait, which should have waited for them: please report this bug.",
}


def staleness_of(run: Run) -> dict[str, Any] | None:
    """Configured against realized; None for runs that have no staleness, and for drafts."""
    if run.kind != "rl" or run.status == RunStatus.DRAFT:
        return None
    spec = RunSpec.model_validate(run.spec)
    live = run.live.get("max_staleness")
    newest = run.metrics
    exceeded = newest.get("staleness/exceeded_groups")
    return {
        "max": spec.staleness.max if live is None else live,
        "on_straggler": spec.staleness.straggler_policy,
        "mean": newest.get("staleness/mean"),
        "realized_max": _whole(newest.get("staleness/max")),
        "exceeded_groups": _whole(exceeded),
        "trained_groups": run.policy_version * spec.trainer.groups_per_step,
        "message": _message(run, spec, newest) if exceeded else "",
    }


def _message(run: Run, spec: RunSpec, newest: dict[str, float]) -> str:
    exceeded, trained = newest["staleness/exceeded_groups"], run.policy_version * spec.trainer.groups_per_step
    share = f" ({exceeded / trained:.0%})" if trained else ""
    step = [
        f"{word} {newest[name]:.3g}"
        for word, name in (
            ("mean", "staleness/mean"),
            ("oldest", "staleness/max"),
            ("bound", "staleness/bound"),
        )
        if name in newest
    ]
    return (
        f"{exceeded:.0f} of {trained} trained groups{share} were older than max staleness; newest step: "
        f"{', '.join(step)}. {REMEDY[spec.staleness.straggler_policy]}"
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
