"""Run the requested assertions and comparisons on a run that has ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from oolong.cli.exit_codes import ExitCode, of_run
from oolong.cli.regression.baseline import Baseline, Comparison, compare
from oolong.cli.regression.noise import Bounds
from oolong.cli.regression.results import Check, RegressionResult
from oolong.cli.regression.values import measured
from oolong.cli.run_output import state_of
from oolong.client import Client
from oolong.client.models import Run
from oolong.contracts.assertions import Assertion


@dataclass(frozen=True)
class RunChecks:
    assertions: list[Assertion] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    baselines: list[Baseline] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)


def check_run(client: Client, run: Run, requested: RunChecks) -> list[Check]:
    """Check the run itself first. A run that did not succeed gets no other checks: its numbers mean nothing."""
    ended = of_run(run)
    succeeded = ended is ExitCode.SUCCEEDED
    result = RegressionResult.PASS if succeeded else RegressionResult.FAIL
    error = ended in (ExitCode.STOPPED, ExitCode.INFRASTRUCTURE)
    checks = [Check("run", f"run {run.name} succeeds", result, state_of(run), error=error)]
    if not succeeded:
        return checks
    checks += [_assert(client, run, assertion) for assertion in requested.assertions]
    checks += [
        compare(client, run, comparison, requested.baselines, requested.bounds)
        for comparison in requested.comparisons
    ]
    return checks


def _assert(client: Client, run: Run, assertion: Assertion) -> Check:
    value = measured(client, run, assertion)
    result = RegressionResult.PASS if assertion.holds(value) else RegressionResult.FAIL
    why = (
        f"{assertion.name} was not measured in this run" if value is None else f"measured {value:.6g}"
    )  # fmt: skip
    return Check("assertion", str(assertion), result, why, value)
