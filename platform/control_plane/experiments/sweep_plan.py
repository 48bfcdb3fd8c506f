"""The plan of a sweep: its points, objective and stop rule. Pure functions."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_TRIALS = 200
Number = Annotated[float, Field(allow_inf_nan=False)]


class _PlanModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Parameter(_PlanModel):
    """A field of the spec that varies: listed values, or a range for random points."""

    pointer: str = Field(pattern=r"^(/[a-z0-9_]+)+$", max_length=200)
    values: list[Any] | None = Field(None, min_length=1, max_length=MAX_TRIALS)
    low: Number | None = None
    high: Number | None = None
    scale: Literal["linear", "log"] = "linear"
    integer: bool = False

    @model_validator(mode="after")
    def _values_or_a_range(self) -> Self:
        if (self.values is None) == (self.low is None or self.high is None):
            raise _invalid("give values, or low and high")
        if self.low is not None and self.high is not None:
            if self.low >= self.high:
                raise _invalid(f"low={self.low:g} must be below high={self.high:g}")
            if self.scale == "log" and self.low <= 0:
                raise _invalid(f"low={self.low:g}: a log scale requires a value above 0")
        return self

    def sample(self, rng: random.Random) -> Any:
        if self.values is not None:
            return rng.choice(self.values)
        assert self.low is not None and self.high is not None
        if self.scale == "log":
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        return round(value) if self.integer else float(f"{value:.6g}")


class Objective(_PlanModel):
    metric: str = Field(pattern=r"^[A-Za-z0-9_./@-]{1,120}$")
    goal: Literal["max", "min"] = "max"

    def better(self, one: float, other: float) -> bool:
        return one > other if self.goal == "max" else one < other


class StopRule(_PlanModel):
    """From train step `at_step` on, stop runs whose objective is worse than `worse_than`; start no more runs once one
    has reached `target`."""

    at_step: int | None = Field(None, ge=1, le=2**31 - 1)
    worse_than: Number | None = None
    target: Number | None = None

    @model_validator(mode="after")
    def _rule_is_complete(self) -> Self:
        if (self.at_step is None) != (self.worse_than is None):
            raise _invalid("give at_step and worse_than together")
        if self.at_step is None and self.target is None:
            raise _invalid("give at_step and worse_than, or target, or leave the stop rule out")
        return self


class SweepPlan(_PlanModel):
    method: Literal["grid", "random"] = "grid"
    parameters: list[Parameter] = Field(min_length=1, max_length=20)
    samples: int | None = Field(None, ge=1, le=MAX_TRIALS)  # of random
    seed: int = Field(1, ge=0, lt=2**63)
    objective: Objective = Objective(metric="reward/mean")
    stop: StopRule | None = None

    @model_validator(mode="after")
    def _method_fits(self) -> Self:
        pointers = [parameter.pointer for parameter in self.parameters]
        for pointer in pointers:
            if pointers.count(pointer) > 1 or any(other.startswith(f"{pointer}/") for other in pointers):
                raise _invalid(f"{pointer} is varied twice")
        if self.method == "random" and self.samples is None:
            raise _invalid("method random requires samples")
        if self.method == "grid":
            if self.samples is not None:
                raise _invalid(f"samples={self.samples} is not allowed for a grid, which tries every point")
            if any(parameter.values is None for parameter in self.parameters):
                raise _invalid("a grid requires values for every parameter; ranges require method: random")
            points = math.prod(len(parameter.values or []) for parameter in self.parameters)
            if points > MAX_TRIALS:
                raise _invalid(f"the grid has {points} points, a sweep at most {MAX_TRIALS}")
        return self

    def points(self) -> list[dict[str, Any]]:
        """Pointer → value for each trial, deterministic and without duplicates."""
        found: list[dict[str, Any]] = []
        for point in self._grid() if self.method == "grid" else self._random():
            if point not in found:
                found.append(point)
        return found

    def in_order(self, values: dict[str, Any]) -> dict[str, Any]:
        """A point's values in the order of the parameters, which the database does not preserve."""
        return {parameter.pointer: values[parameter.pointer] for parameter in self.parameters}

    def _grid(self) -> Iterator[dict[str, Any]]:
        names = [parameter.pointer for parameter in self.parameters]
        for values in itertools.product(*(parameter.values or [] for parameter in self.parameters)):
            yield dict(zip(names, values, strict=True))

    def _random(self) -> Iterator[dict[str, Any]]:
        rng = random.Random(self.seed)
        for _ in range(self.samples or 0):
            yield {parameter.pointer: parameter.sample(rng) for parameter in self.parameters}


def set_values(document: Any, values: dict[str, Any]) -> Any:
    """A copy of the document with these fields set; missing sections are created."""
    changed = deepcopy(document)
    for pointer, value in values.items():
        *sections, field = pointer[1:].split("/")
        target = changed
        for section in sections:
            if not isinstance(target.get(section), dict):
                target[section] = {}
            target = target[section]
        target[field] = value
    return changed


def trial_name(sweep: str, values: dict[str, Any]) -> str:
    """The name of a trial's run: the sweep and its varied values."""
    point = " ".join(f"{pointer.rsplit('/', 1)[1]}={value}" for pointer, value in values.items())
    return f"{sweep} {point}"[:120]


def best_index(objective: Objective, values: Sequence[float | None]) -> int | None:
    """The index of the best value; None when there is none."""
    best: int | None = None
    for index, value in enumerate(values):
        if value is None or math.isnan(value):
            continue
        held = values[best] if best is not None else None
        if held is None or objective.better(value, held):
            best = index
    return best


def stop_reason(plan: SweepPlan, *, train_step: int, value: float | None) -> str:
    """Why the stop rule stops this run now; empty when it does not."""
    rule = plan.stop
    if rule is None or rule.at_step is None or rule.worse_than is None or value is None:
        return ""
    if train_step < rule.at_step or not plan.objective.better(rule.worse_than, value):
        return ""
    return f"{plan.objective.metric}={value:g} at step {train_step} is worse than {rule.worse_than:g}"


def target_reached(plan: SweepPlan, values: Sequence[float | None]) -> bool:
    """Whether a run has reached the target."""
    target = plan.stop.target if plan.stop is not None else None
    if target is None:
        return False
    return any(
        value is not None and (value == target or plan.objective.better(value, target)) for value in values
    )


def _invalid(message: str) -> PydanticCustomError:
    return PydanticCustomError("sweep_invalid", message.replace("{", "{{").replace("}", "}}"))
