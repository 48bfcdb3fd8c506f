"""A weighted sum of reward functions, each with its own options."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_agents.rewards.reward import Completion, Score, Scorer, read_options
from oolong.contracts.run_spec.reward_options import CompositeOptions


@dataclass(frozen=True)
class Part:
    label: str  # the function's name, or name-2 for its second use
    weight: float
    scorer: Scorer


@dataclass(frozen=True)
class PartOptions:
    label: str
    name: str
    weight: float
    options: dict[str, Any]


def read_parts(options: dict[str, Any]) -> list[PartOptions]:
    """Parse the parts. Raises InvalidOptions with all errors, including those of the parts' options."""
    found: list[PartOptions] = []
    for part in read_options(CompositeOptions, options, reward="composite").parts:
        same = sum(before.name == part.name for before in found)
        label = part.name if not same else f"{part.name}-{same + 1}"
        found.append(PartOptions(label, part.name, part.weight, part.options))
    return found


class Composite:
    """Scores all parts concurrently. If a part fails, the completion has no score."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    async def start(self) -> None:
        for part in self._parts:
            await part.scorer.start()

    async def score(self, completion: Completion) -> Score:
        results = await asyncio.gather(
            *(part.scorer.score(completion) for part in self._parts), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        scores = [result for result in results if isinstance(result, Score)]
        parts: dict[str, float] = {}
        for part, score in zip(self._parts, scores, strict=True):
            parts[part.label] = score.value
            parts |= {f"{part.label}/{name}": value for name, value in score.parts.items()}
        return Score(
            value=sum(part.weight * score.value for part, score in zip(self._parts, scores, strict=True)),
            parts=parts,
            result=" ".join(
                f"{part.label}:{score.result}"
                for part, score in zip(self._parts, scores, strict=True)
                if score.result
            ),
            forgeable=any(score.forgeable for score in scores),
            text="\n\n".join(
                f"{part.label}: {score.text}"
                for part, score in zip(self._parts, scores, strict=True)
                if score.text
            ),
        )

    async def close(self) -> None:
        for part in self._parts:
            await part.scorer.close()
