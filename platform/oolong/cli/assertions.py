"""`--assert 'reward/mean >= 0.8'`: a metric's last value, or a number of the run's summary, against a bound."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from oolong.client import Client
from oolong.client.models import Run

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_SYNTAX = re.compile(
    r"\s*(?P<name>[\w./\-]+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<bound>[-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*"
)


@dataclass(frozen=True)
class Assertion:
    name: str  # metric name, or summary.<name>.<key>...
    operator: str
    bound: float

    def holds(self, value: float | None) -> bool:
        """A value that was never measured satisfies nothing."""
        return value is not None and _OPERATORS[self.operator](value, self.bound)

    def __str__(self) -> str:
        return f"{self.name} {self.operator} {self.bound:g}"


def parse(text: str) -> Assertion:
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ValueError(
            f"assertion {text!r} is not understood; write NAME OPERATOR NUMBER, for example 'reward/mean >= 0.8' or "
            "'summary.evaluation.end.greedy > 0.5'"
        )
    return Assertion(match["name"], match["operator"], float(match["bound"]))


def measured(client: Client, run: Run, assertion: Assertion) -> float | None:
    """What the assertion is about; None when the run has no such value."""
    if assertion.name.startswith("summary."):
        return summary_value(run, assertion.name.removeprefix("summary.").split("."))
    return client.runs.last_value(run.id, assertion.name)


def summary_value(run: Run, path: list[str]) -> float | None:
    value: object = run.summary
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
