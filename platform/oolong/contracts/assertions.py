"""`eval/accuracy >= 0.8`: a named value against a bound, as people write it for `run wait --assert` and for gates."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

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
    """Raise ValueError, with the way out, for what is no assertion."""
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ValueError(
            f"assertion {text!r} is not understood; write NAME OPERATOR NUMBER, for example 'reward/mean >= 0.8' or "
            "'summary.evaluation.end.greedy > 0.5'"
        )
    return Assertion(match["name"], match["operator"], float(match["bound"]))
