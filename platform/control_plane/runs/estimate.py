"""Estimates a spec before submission: jobs, slots, position in the queue, tokens and time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from control_plane.accounts.identity.caller import Caller
from control_plane.runs import waiting
from control_plane.runs.models import Run
from control_plane.runs.plan_jobs import plan_jobs
from control_plane.runs.spec_resolution import Resolved
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec

SAMPLE_SIZE = 5  # newest comparable runs that an estimate uses
_SHAPE = (  # what two runs must share to be comparable
    ("rollout", "group_size"), ("rollout", "max_new_tokens"), ("rollout", "engines"), ("trainer", "num_ranks"),
    ("trainer", "groups_per_step"), ("trainer", "dtype"), ("workflow", "name"),
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    jobs: list[dict[str, Any]]
    slots: int
    placement: waiting.WaitExplanation
    tokens: dict[str, int | None]
    time: dict[str, Any]
    groups: int | None


def estimate(caller: Caller, resolved: Resolved, *, now: datetime) -> Estimate:
    """Estimate a spec without errors. Writes nothing."""
    spec = resolved.spec
    assert spec is not None
    placement = waiting.preview(
        caller, spec, model_path=resolved.base_model.path if resolved.base_model else "", now=now
    )
    groups = spec.trainer.total_train_steps * spec.trainer.groups_per_step if spec.kind == "rl" else None
    most = groups * spec.rollout.group_size * spec.rollout.max_new_tokens if groups is not None else None
    return Estimate(
        jobs=[
            {"name": job.name, "kind": str(job.kind), "slots": len(job.slots)}
            for job in plan_jobs(spec, [""] * spec.slots_needed)
        ],
        slots=spec.slots_needed,
        placement=placement,
        groups=groups,
        tokens={"generated_at_most": most},
        time=_time(caller, resolved, spec),
    )


def _time(caller: Caller, resolved: Resolved, spec: RunSpec) -> dict[str, Any]:
    """The median time of the project's newest comparable runs that succeeded; null values when there are none."""
    wanted = {f"spec__{section}__{name}": getattr(getattr(spec, section), name) for section, name in _SHAPE}
    alike = (
        Run.objects.filter(
            project=caller.project, kind=spec.kind, status=RunStatus.SUCCEEDED, base_model=resolved.base_model,
            started_at__isnull=False, ended_at__isnull=False, train_step__gt=0, attempt_number=1, **wanted,
        )
        .order_by("-pk")
        .only("started_at", "ended_at", "paused_seconds", "train_step", "total_train_steps")[:SAMPLE_SIZE]
    )  # fmt: skip
    per_step = [
        ((run.ended_at - run.started_at).total_seconds() - run.paused_seconds) / run.train_step
        for run in alike
        if run.ended_at is not None and run.started_at is not None
    ]
    if not per_step:
        return {"seconds": None, "gpu_hours": None, "from_runs": 0}
    steps = spec.sft.steps if spec.kind == "sft" else spec.trainer.total_train_steps
    seconds = median(per_step) * steps
    return {
        "seconds": round(seconds, 1), "gpu_hours": round(seconds * spec.slots_needed / 3600, 4),
        "from_runs": len(per_step),
    }  # fmt: skip
