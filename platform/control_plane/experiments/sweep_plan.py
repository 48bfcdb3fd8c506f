"""Which points a sweep tries, and what its results say: pure functions over plain data."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MOST_TRIALS = 200
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Parameter(_Part):
    """One field of the spec that varies: listed values, or a range that random points are drawn from."""

    pointer: str = Field(pattern=r"^(/[a-z0-9_]+)+$", max_length=200)
    values: list[Any] | None = Field(None, min_length=1, max_length=MOST_TRIALS)
    low: Number | None = None
    high: Number | None = None
    scale: Literal["linear", "log"] = "linear"
    integer: bool = False

    @model_validator(mode="after")
    def _values_or_a_range(self) -> Self:
        if (self.values is None) == (self.low is None or self.high is None):
            raise _refuse("give values, or low and high")
        if self.low is not None and self.high is not None:
            if self.low >= self.high:
                raise _refuse(f"low={self.low:g} is not below high={self.high:g}")
            if self.scale == "log" and self.low <= 0:
                raise _refuse(f"low={self.low:g}: a log scale begins above 0")
        return self

    def draw(self, chance: random.Random) -> Any:
        if self.values is not None:
            return chance.choice(self.values)
        assert self.low is not None and self.high is not None
        if self.scale == "log":
            value = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = chance.uniform(self.low, self.high)
        return round(value) if self.integer else float(f"{value:.6g}")


class Objective(_Part):
    metric: str = Field(pattern=r"^[A-Za-z0-9_./@-]{1,120}$")
    goal: Literal["max", "min"] = "max"

    def better(self, one: float, other: float) -> bool:
        return one > other if self.goal == "max" else one < other


class StopRule(_Part):
    """From train step `at_step` on a run whose objective is worse than `worse_than` is stopped, with a checkpoint; and
    the sweep begins no more runs once one has reached `target`."""

    at_step: int | None = Field(None, ge=1, le=2**31 - 1)
    worse_than: Number | None = None
    target: Number | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.at_step is None) != (self.worse_than is None):
            raise _refuse("at_step and worse_than belong together")
        if self.at_step is None and self.target is None:
            raise _refuse("give at_step and worse_than, or target, or leave the stop rule out")
        return self


class SweepPlan(_Part):
    method: Literal["grid", "random"] = "grid"
    parameters: list[Parameter] = Field(min_length=1, max_length=20)
    samples: int | None = Field(None, ge=1, le=MOST_TRIALS)  # of random
    seed: int = Field(1, ge=0, lt=2**63)
    objective: Objective = Objective(metric="reward/mean")
    stop: StopRule | None = None

    @model_validator(mode="after")
    def _method_fits(self) -> Self:
        pointers = [parameter.pointer for parameter in self.parameters]
        for pointer in pointers:
            if pointers.count(pointer) > 1 or any(other.startswith(f"{pointer}/") for other in pointers):
                raise _refuse(f"{pointer} is varied twice")
        if self.method == "random" and self.samples is None:
            raise _refuse("method random needs samples")
        if self.method == "grid":
            if self.samples is not None:
                raise _refuse(f"samples={self.samples} has no say in a grid, which tries every point")
            if any(parameter.values is None for parameter in self.parameters):
                raise _refuse("a grid needs values for every parameter; a range is for method: random")
            points = math.prod(len(parameter.values or []) for parameter in self.parameters)
            if points > MOST_TRIALS:
                raise _refuse(f"the grid has {points} points, a sweep at most {MOST_TRIALS}")
        return self

    def points(self) -> list[dict[str, Any]]:
        """Pointer → value, of each trial. The same plan gives the same points; none comes twice."""
        found: list[dict[str, Any]] = []
        for point in self._grid() if self.method == "grid" else self._random():
            if point not in found:
                found.append(point)
        return found

    def in_order(self, values: dict[str, Any]) -> dict[str, Any]:
        """A point's values in the order of the parameters: the database keeps none."""
        return {parameter.pointer: values[parameter.pointer] for parameter in self.parameters}

    def _grid(self) -> Iterator[dict[str, Any]]:
        names = [parameter.pointer for parameter in self.parameters]
        for values in itertools.product(*(parameter.values or [] for parameter in self.parameters)):
            yield dict(zip(names, values, strict=True))

    def _random(self) -> Iterator[dict[str, Any]]:
        chance = random.Random(self.seed)
        for _ in range(self.samples or 0):
            yield {parameter.pointer: parameter.draw(chance) for parameter in self.parameters}


def set_values(document: Any, values: dict[str, Any]) -> Any:
    """A copy of the document with these fields set; sections on the way are made."""
    changed = deepcopy(document)
    for pointer, value in values.items():
        *sections, field = pointer[1:].split("/")
        place = changed
        for section in sections:
            if not isinstance(place.get(section), dict):
                place[section] = {}
            place = place[section]
        place[field] = value
    return changed


def name_of(sweep: str, values: dict[str, Any]) -> str:
    """What a trial's run is called: the sweep, and what it varies."""
    said = " ".join(f"{pointer.rsplit('/', 1)[1]}={value}" for pointer, value in values.items())
    return f"{sweep} {said}"[:120]


def best_of(objective: Objective, values: Sequence[float | None]) -> int | None:
    """The index of the best value; None when there is none."""
    best: int | None = None
    for index, value in enumerate(values):
        if value is None or math.isnan(value):
            continue
        held = values[best] if best is not None else None
        if held is None or objective.better(value, held):
            best = index
    return best


def to_be_stopped(plan: SweepPlan, *, train_step: int, value: float | None) -> str:
    """Why a run of the sweep is to be stopped now; empty when it is not."""
    rule = plan.stop
    if rule is None or rule.at_step is None or rule.worse_than is None or value is None:
        return ""
    if train_step < rule.at_step or not plan.objective.better(rule.worse_than, value):
        return ""
    return f"{plan.objective.metric}={value:g} at step {train_step} is worse than {rule.worse_than:g}"


def reached(plan: SweepPlan, values: Sequence[float | None]) -> bool:
    """Whether a run has reached the target."""
    target = plan.stop.target if plan.stop is not None else None
    if target is None:
        return False
    return any(
        value is not None and (value == target or plan.objective.better(value, target)) for value in values
    )


def _refuse(message: str) -> PydanticCustomError:
    return PydanticCustomError("sweep_invalid", message.replace("{", "{{").replace("}", "}}"))
