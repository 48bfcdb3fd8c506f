"""Scheduler requests of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from control_plane.accounts.models import Project
from control_plane.fleet.fair_order import sort_queue
from control_plane.fleet.snapshot import Request
from control_plane.runs.models import Run
from control_plane.runs.spec_resolution import DEDICATED_ENDPOINTS
from oolong.contracts.run_spec import PlacementSection, RunSpec
from oolong.contracts.run_spec.spec import TRAINING_KINDS

PREEMPTIBLE_KINDS = frozenset(DEDICATED_ENDPOINTS)
CHECKPOINTING_KINDS = frozenset(TRAINING_KINDS)  # with a trainer: they leave their slots and continue later


def sort_runs(runs: Iterable[Run]) -> list[Run]:
    """Runs of one pool in the scheduler's order."""
    found = {run.pk: run for run in runs}
    return [found[request.id] for request in sort_queue([request_of(run) for run in found.values()])]


def request_of(run: Run) -> Request:
    return Request(
        id=run.pk, name=run.name, team=run.project.team_id, priority=run.priority, slots=run.slots_needed,
        submitted_at=run.created_at, not_before=run.not_before,
        model_path=run.model_path,
        isolated=has_custom_loss(run.spec), trainer_ranks=trainer_ranks(run.spec),
        preemptible=run.kind in PREEMPTIBLE_KINDS, project=run.project_id, promised_start=run.promised_start_at,
        saves_checkpoints=run.kind in CHECKPOINTING_KINDS,
        **slot_requirements(run.placement),
    )  # fmt: skip


def request_of_spec(
    spec: RunSpec,
    *,
    project: Project,
    submitted_at: datetime,
    model_path: str,
    id: str = "preview",
    priority: int | None = None,
) -> Request:
    """The request of a run that is not submitted."""
    document = spec.model_dump(mode="json")
    return Request(
        id=id, name=spec.name, team=project.team_id, project=project.pk, slots=spec.slots_needed,
        priority=spec.placement.priority if priority is None else priority, submitted_at=submitted_at,
        model_path=model_path, isolated=has_custom_loss(document), trainer_ranks=trainer_ranks(document),
        preemptible=spec.kind in PREEMPTIBLE_KINDS, saves_checkpoints=spec.kind in CHECKPOINTING_KINDS,
        **slot_requirements(spec.placement),
    )  # fmt: skip


def has_custom_loss(spec: Mapping[str, Any]) -> bool:
    """Whether the trainer runs an uploaded loss. Reads the stored spec without validation, for speed at every tick."""
    return bool((spec.get("algorithm") or {}).get("loss_function"))


def trainer_ranks(spec: Mapping[str, Any]) -> int:
    """Number of separate devices that the trainer needs. Reads the stored spec without validation."""
    return int((spec.get("trainer") or {}).get("num_ranks") or 1) if spec.get("kind") in TRAINING_KINDS else 1


def slot_requirements(placement: PlacementSection) -> dict[str, Any]:
    return {
        "device": placement.device or "",
        "slot_memory_bytes": int((placement.min_gpu_memory_gib or 0) * 2**30),
        "gpu_model": (placement.gpu_model or "").casefold(),
        "exclude_nodes": frozenset(placement.exclude_nodes),
        "max_nodes": placement.nodes,
    }
