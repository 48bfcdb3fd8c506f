"""What a run asks of the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from control_plane.fleet.scheduler import Request, order
from control_plane.runs.models import Run
from control_plane.runs.spec_for_node import uses_added_fields
from oolong.contracts.agent import FIELDS_OF_6, OLDEST_PROTOCOL, SECRETS_IN_JOBS, TESTS_AND_PLAYGROUNDS
from oolong.contracts.run_spec import PlacementSection


def in_order(runs: Iterable[Run]) -> list[Run]:
    """As the scheduler takes them, when they are of one pool."""
    found = {run.pk: run for run in runs}
    return [found[request.id] for request in order([request_of(run) for run in found.values()])]


def request_of(run: Run) -> Request:
    return Request(
        id=run.pk, name=run.name, team=run.project.team_id, priority=run.priority, slots=run.slots_needed,
        submitted_at=run.created_at, not_before=run.not_before,
        protocol=protocol_needed(run.kind, run.spec),
        model_path=run.base_model.path if run.base_model is not None else "",
        isolated=runs_own_loss(run.spec), trainer_ranks=trainer_ranks(run.spec),
        **slot_needs(run.placement),
    )  # fmt: skip


def runs_own_loss(spec: Mapping[str, Any]) -> bool:
    """Whether the trainer runs an uploaded loss. Read from the stored document: this is asked at every tick."""
    return bool((spec.get("algorithm") or {}).get("loss_function"))


def trainer_ranks(spec: Mapping[str, Any]) -> int:
    """How many devices of its own the trainer needs. Read from the stored document, as above."""
    return int((spec.get("trainer") or {}).get("num_ranks") or 1) if spec.get("kind") in ("rl", "sft") else 1


def slot_needs(placement: PlacementSection) -> dict[str, Any]:
    return {
        "device": placement.device or "",
        "slot_memory_bytes": int((placement.min_gpu_memory_gib or 0) * 2**30),
    }


def protocol_needed(kind: str, spec: Mapping[str, Any]) -> int:
    """An older agent would start jobs without the secrets, leave out what a newer field asks for, and end at a kind of
    run that it does not know."""
    if uses_added_fields(spec):
        return FIELDS_OF_6
    if kind in ("reward_test", "playground"):
        return TESTS_AND_PLAYGROUNDS
    return SECRETS_IN_JOBS if spec.get("secrets") else OLDEST_PROTOCOL
