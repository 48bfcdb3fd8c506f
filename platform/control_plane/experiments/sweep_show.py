"""How sweeps look in the API: the sweep with its counts and best run, and the table of its trials."""

from __future__ import annotations

from collections import Counter
from typing import Any

from control_plane.core.infra.clock import rfc3339
from control_plane.experiments.models import Sweep, SweepTrial
from control_plane.experiments.sweep_plan import SweepPlan, best_index
from control_plane.experiments.sweeps import plan_of, value_of
from oolong.contracts.lifecycle import ENDED, RunStatus


def sweeps_as_json(sweeps: list[Sweep]) -> list[dict[str, Any]]:
    """A page of sweeps; their trials are fetched together."""
    trials: dict[str, list[SweepTrial]] = {sweep.pk: [] for sweep in sweeps}
    rows = SweepTrial.objects.filter(sweep__in=sweeps).select_related("run").order_by("number")
    for trial in rows:
        trials[trial.sweep_id].append(trial)
    return [_sweep_as_json(sweep, trials[sweep.pk]) for sweep in sweeps]


def sweep_as_json(sweep: Sweep) -> dict[str, Any]:
    return sweeps_as_json([sweep])[0]


def trial_as_json(plan: SweepPlan, trial: SweepTrial) -> dict[str, Any]:
    run = trial.run
    return {
        "number": trial.number,
        "values": plan.in_order(trial.values),
        "run": {"id": run.pk, "name": run.name, "status": str(run.status)} if run is not None else None,
        "state": _state(trial),
        "skipped": trial.skipped,
        "train_step": run.train_step if run is not None else 0,
        "objective": value_of(plan, trial),
    }


def _sweep_as_json(sweep: Sweep, trials: list[SweepTrial]) -> dict[str, Any]:
    plan = plan_of(sweep)
    best = best_index(plan.objective, [value_of(plan, trial) for trial in trials])
    counts = Counter(_state(trial) for trial in trials)
    return {
        "id": sweep.pk,
        "name": sweep.name,
        "status": str(sweep.status),
        "message": sweep.message,
        "spec": sweep.spec,
        "plan": sweep.plan,
        "max_parallel": sweep.max_parallel,
        "trials": len(trials),
        "counts": {state: counts[state] for state in STATES},
        "best": trial_as_json(plan, trials[best]) if best is not None else None,
        "created_by": sweep.created_by.username,
        "created_at": rfc3339(sweep.created_at),
        "ended_at": rfc3339(sweep.ended_at),
    }


STATES = ("waiting", "running", "succeeded", "stopped", "failed", "skipped")


def _state(trial: SweepTrial) -> str:
    if trial.run is None:
        return "skipped" if trial.skipped else "waiting"
    if trial.run.status not in ENDED:
        return "running"
    return {RunStatus.SUCCEEDED: "succeeded", RunStatus.FAILED: "failed"}.get(
        RunStatus(trial.run.status), "stopped"
    )
