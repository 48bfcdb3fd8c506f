"""`--assert 'reward/mean >= 0.8'`: a metric's last value, or a number of the run's summary, against a bound."""

from __future__ import annotations

from oolong.client import Client
from oolong.client.models import Run
from oolong.contracts.assertions import Assertion, parse

__all__ = ["Assertion", "measured", "parse", "summary_value"]


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
