"""Other ways to place a run: pure functions over its spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oolong.contracts.run_spec import RunSpec

MAX_SIZES = 4  # of engines, and of ranks
MAX_POOLS = 4

Kind = Literal["engines", "ranks", "memory", "gpu_model", "device", "pool"]


@dataclass(frozen=True)
class Variant:
    kind: Kind
    changes: dict[str, Any]  # merged into the spec (RFC 7396)
    words: str  # "with 2 engines instead of 4"


def variants(spec: RunSpec, *, pools: Sequence[str], devices: Sequence[str]) -> list[Variant]:
    """Each changes one thing. Sizes come in descending order: what a larger one allows, a smaller one allows as well.
    `pools` are those that the team may use, `devices` those of the slots of the run's own pool."""
    found = []
    if spec.kind in ("rl", "eval"):
        for count in _smaller(spec.rollout.engines):
            words = f"with {_count(count, 'engine')} instead of {spec.rollout.engines}"
            found.append(Variant("engines", {"rollout": {"engines": count}}, words))
    if spec.trains:
        for count in _smaller(spec.trainer.num_ranks):
            words = f"with {_count(count, 'trainer rank')} instead of {spec.trainer.num_ranks}"
            found.append(Variant("ranks", {"trainer": {"num_ranks": count}}, words))
    placement = spec.placement
    if placement.min_gpu_memory_gib is not None:
        words = f"without min_gpu_memory_gib {placement.min_gpu_memory_gib:g}"
        found.append(Variant("memory", {"placement": {"min_gpu_memory_gib": None}}, words))
    if placement.gpu_model is not None:
        words = f"without gpu_model {placement.gpu_model}"
        found.append(Variant("gpu_model", {"placement": {"gpu_model": None}}, words))
    for device in devices:
        if placement.device not in (None, device):
            changes: dict[str, Any] = {"device": device}
            if device == "cpu":
                changes |= {
                    "min_gpu_memory_gib": None,
                    **({"gpu_model": None} if placement.gpu_model else {}),
                }
            found.append(
                Variant("device", {"placement": changes}, f"on {device} instead of {placement.device}")
            )
    for pool in [name for name in pools if name != placement.pool][:MAX_POOLS]:
        words = f"in pool {pool} instead of {placement.pool}"
        found.append(Variant("pool", {"placement": {"pool": pool}}, words))
    return found


def _smaller(count: int) -> list[int]:
    """Smaller counts down to 1, at most MAX_SIZES."""
    every = list(range(count - 1, 0, -1))
    if len(every) <= MAX_SIZES:
        return every
    return sorted({max(1, round(count * part)) for part in (0.75, 0.5, 0.25)} | {1}, reverse=True)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
