"""A gate over a run that has ended: everything that was asked, checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from oolong.cli.exit_codes import ExitCode, of_run
from oolong.cli.regression.baseline import Baseline, Comparison, compare
from oolong.cli.regression.noise import Bounds
from oolong.cli.regression.values import measured
from oolong.cli.regression.verdict import Check, Verdict
from oolong.cli.run_output import state_of
from oolong.client import Client
from oolong.client.models import Run
from oolong.contracts.assertions import Assertion


@dataclass(frozen=True)
class Gate:
    assertions: list[Assertion] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    baselines: list[Baseline] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)


def check_run(client: Client, run: Run, gate: Gate) -> list[Check]:
    """The run itself first. Of a run that did not succeed nothing else is asked: its numbers are of something else."""
    ended = of_run(run)
    succeeded = ended is ExitCode.SUCCEEDED
    checks = [
        Check(
            "run", f"run {run.name} succeeds", Verdict.PASS if succeeded else Verdict.FAIL, state_of(run),
            error=ended in (ExitCode.STOPPED, ExitCode.INFRASTRUCTURE),
        )
    ]  # fmt: skip
    if not succeeded:
        return checks
    checks += [_assert(client, run, assertion) for assertion in gate.assertions]
    checks += [
        compare(client, run, comparison, gate.baselines, gate.bounds) for comparison in gate.comparisons
    ]
    return checks


def _assert(client: Client, run: Run, assertion: Assertion) -> Check:
    value = measured(client, run, assertion)
    verdict = Verdict.PASS if assertion.holds(value) else Verdict.FAIL
    why = (
        f"{assertion.name} was not measured in this run" if value is None else f"measured {value:.6g}"
    )  # fmt: skip
    return Check("assertion", str(assertion), verdict, why, value)
