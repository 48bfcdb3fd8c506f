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
    node: str | None = None  # None: the attempt's node


def plan_jobs(
    spec: RunSpec, slots: Sequence[str], others: Sequence[tuple[str, Sequence[str]]] = ()
) -> list[JobPlan]:
    """The trainer takes the first `trainer.num_ranks` slots, each engine one of the rest. Needs `spec.slots_needed`.
    `others` are (node, slots) with further ranks: for each node a trainer job, whose index is its node rank.

    Eval runs and reward tests have no trainer: their controller publishes the initial weights.
    """
    elsewhere = sum(len(of_node) for _, of_node in others)
    if len(slots) + elsewhere != spec.slots_needed:
        raise ValueError(f"{len(slots) + elsewhere} slots given, the spec needs {spec.slots_needed}")
    ranks = spec.trainer.num_ranks - elsewhere if spec.trains else 0
    trainer = JobPlan("trainer", JobKind.TRAINER, 0, tuple(slots[:ranks]), 0, TRAINER_GRACE_SECONDS)
    followers = [
        JobPlan(f"trainer-{rank}", JobKind.TRAINER, rank, tuple(of_node), 0, TRAINER_GRACE_SECONDS, node)
        for rank, (node, of_node) in enumerate(others, start=1)
    ]
    if spec.only_trains:
        return [trainer, *followers]
    reward = JobPlan("reward", JobKind.REWARD, 0, (), IN_PLACE_RESTARTS, GRACE_SECONDS)
    engines = [
        JobPlan(f"rollout-{index}", JobKind.ROLLOUT, index, (slot,), IN_PLACE_RESTARTS, GRACE_SECONDS)
        for index, slot in enumerate(slots[ranks:])
    ]
    if spec.kind == "playground":
        return [reward, *engines] if spec.scores else engines
    generation = [JobPlan("controller", JobKind.CONTROLLER, 0, (), 0, GRACE_SECONDS), reward, *engines]
    return [*generation, trainer, *followers] if spec.trains else generation


def port_names(spec: RunSpec) -> list[str]:
    """Ports that the attempt's jobs listen on, fixed for its life."""
    if spec.only_trains:
        return []
    if spec.kind == "playground":
        return [*(["reward"] if spec.scores else []), "engine-0", "playground-0"]
    return [
        "controller",
        "reward",
        *(f"engine-{index}" for index in range(spec.engines_needed)),
        *(f"session-{index}" for index in range(spec.rollout.engines) if spec.serves_sessions),
    ]
