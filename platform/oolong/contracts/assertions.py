"""`eval/accuracy >= 0.8`: a named value against a bound, as people write it for `run wait --assert` and for gates.

`mean(reward/mean, 20) >= 0.8` is about the last 20 points of the metric, `max(reward/mean) > 0.9` about all of them.
"""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oolong.contracts.error_words import nearest
from oolong.contracts.metrics import METRICS, find_metric

# Beside the catalog: what the summary of an eval run has for a number of samples, as a gate reads it.
EVALUATION_ONLY = re.compile(r"eval/pass_at_\d+(_low|_high)?|eval/prompts")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1], "mean": statistics.fmean, "min": min, "max": max,
}  # fmt: skip
_NAME = r"[\w./\-]+"
_SYNTAX = re.compile(
    rf"\s*(?:(?P<aggregate>[a-z]+)\s*\(\s*(?P<inner>{_NAME})\s*(?:,\s*(?P<window>\d+)\s*)?\)|(?P<name>{_NAME}))"
    r"\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<bound>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)


@dataclass(frozen=True)
class Assertion:
    name: str  # metric name, or summary.<name>.<key>...
    operator: str
    bound: float
    aggregate: str = "last"
    window: int | None = None  # of so many of the newest points; None: of all

    def of(self, values: Sequence[float]) -> float:
        """The value that the assertion is about, from the metric's points, oldest first; at least one."""
        return AGGREGATES[self.aggregate](values[-self.window :] if self.window else values)

    def holds(self, value: float | None) -> bool:
        """A value that was never measured satisfies nothing."""
        return value is not None and _OPERATORS[self.operator](value, self.bound)

    @property
    def subject(self) -> str:
        """What stands left of the operator."""
        if self.aggregate == "last":
            return self.name
        return f"{self.aggregate}({self.name}{'' if self.window is None else f', {self.window}'})"

    def __str__(self) -> str:
        return f"{self.subject} {self.operator} {self.bound:g}"


def parse(text: str) -> Assertion:
    """Raise ValueError, with the way out, for what is no assertion."""
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ValueError(
            f"assertion {text!r} is not understood; write NAME OPERATOR NUMBER, for example 'reward/mean >= 0.8', "
            "'mean(reward/mean, 20) >= 0.8' or 'summary.evaluation.end.greedy > 0.5'"
        )
    aggregate = match["aggregate"] or "last"
    if aggregate not in AGGREGATES:
        raise ValueError(f"assertion {text!r}: {aggregate!r} is none of {', '.join(AGGREGATES)}")
    window = int(match["window"]) if match["window"] else None
    if window == 0:
        raise ValueError(f"assertion {text!r}: a window has at least one point")
    name = match["inner"] or match["name"]
    if name.startswith("summary.") and match["aggregate"]:
        raise ValueError(f"assertion {text!r}: a summary is one number, so leave {aggregate}( ) away")
    return Assertion(name, match["operator"], float(match["bound"]), aggregate, window)


def name_fault(assertion: Assertion) -> str:
    """Why no run can have what the assertion names; "" when one can."""
    name = assertion.name
    if name.startswith("summary.") or find_metric(name) or EVALUATION_ONLY.fullmatch(name):
        return ""
    return f"assertion '{assertion}': no run measures {name!r}{nearest(name, METRICS)}; see the metrics reference"
