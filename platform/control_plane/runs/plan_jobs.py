"""From a RunSpec to the jobs of one attempt: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec import RunSpec

IN_PLACE_RESTARTS = 3  # of engines and the reward service, within the agent's window
TRAINER_GRACE_SECONDS = 180.0  # to finish the step and commit a checkpoint
GRACE_SECONDS = 15.0


@dataclass(frozen=True)
class JobPlan:
    name: str
    kind: JobKind
    index: int
    slots: tuple[str, ...]
    restarts: int
    grace_seconds: float


def plan_jobs(spec: RunSpec, slots: Sequence[str]) -> list[JobPlan]:
    """The trainer takes the first `trainer.num_ranks` slots, each engine one of the rest. Needs `spec.slots_needed`.

    Eval runs and reward tests have no trainer: their controller publishes the initial weights.
    """
    if len(slots) != spec.slots_needed:
        raise ValueError(f"{len(slots)} slots given, the spec needs {spec.slots_needed}")
    ranks = spec.trainer.num_ranks if spec.trains else 0
    trainer = JobPlan("trainer", JobKind.TRAINER, 0, tuple(slots[:ranks]), 0, TRAINER_GRACE_SECONDS)
    if spec.kind == "sft":
        return [trainer]
    reward = JobPlan("reward", JobKind.REWARD, 0, (), IN_PLACE_RESTARTS, GRACE_SECONDS)
    engines = [
        JobPlan(f"rollout-{index}", JobKind.ROLLOUT, index, (slot,), IN_PLACE_RESTARTS, GRACE_SECONDS)
        for index, slot in enumerate(slots[ranks:])
    ]
    if spec.kind == "playground":
        return [reward, *engines] if spec.scores else engines
    generation = [JobPlan("controller", JobKind.CONTROLLER, 0, (), 0, GRACE_SECONDS), reward, *engines]
    return [*generation, trainer] if spec.trains else generation


def port_names(spec: RunSpec) -> list[str]:
    """Ports that the attempt's jobs listen on, fixed for its life."""
    if spec.kind == "sft":
        return []
    if spec.kind == "playground":
        return [*(["reward"] if spec.scores else []), "engine-0", "playground-0"]
    return [
        "controller",
        "reward",
        *(f"engine-{index}" for index in range(spec.engines_needed)),
        *(f"session-{index}" for index in range(spec.rollout.engines) if spec.serves_sessions),
    ]
