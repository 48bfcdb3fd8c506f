"""Estimates a spec before submission: jobs, slots, position in the queue, tokens and time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from control_plane.accounts.identity.caller import Caller
from control_plane.runs import waiting
from control_plane.runs.durations import Predictor
from control_plane.runs.models import Run
from control_plane.runs.plan_jobs import plan_jobs
from control_plane.runs.spec_resolution import Resolved
from oolong.contracts.run_spec import RunSpec


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
    placement = waiting.preview(caller, spec, model_path=resolved.model_path, now=now)
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
        time=_time(caller, resolved, spec, now=now),
    )


def _time(caller: Caller, resolved: Resolved, spec: RunSpec, *, now: datetime) -> dict[str, Any]:
    """From the project's newest comparable runs that succeeded; null values when there are none."""
    run = Run(
        project=caller.project, kind=spec.kind, spec=spec.model_dump(mode="json"), base_model=resolved.base_model,
        total_train_steps=spec.optimizer_steps,
    )  # fmt: skip
    predictor = Predictor(now)
    per_step = predictor.step_seconds(run)
    if not per_step:
        return {"seconds": None, "seconds_p90": None, "gpu_hours": None, "from_runs": 0}
    found = predictor.of_queued(run).duration
    assert found.p50 is not None
    return {
        "seconds": round(found.p50, 1), "seconds_p90": None if found.p90 is None else round(found.p90, 1),
        "gpu_hours": round(found.p50 * spec.slots_needed / 3600, 4), "from_runs": len(per_step),
    }  # fmt: skip
