"""What a run is compared with: other runs, the run behind an alias, or numbers from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oolong.cli.gate.noise import Band, Measured, band, judge
from oolong.cli.gate.values import with_interval
from oolong.cli.gate.verdict import Check, Verdict
from oolong.client import Client
from oolong.client.models import Run

FORMS = 'run:ID, alias:NAME or a JSON file such as {"eval/accuracy": [0.81, 0.80, 0.82]}'

Baseline = Run | Mapping[str, list[Measured]]


class NoBaseline(ValueError):
    """The text names none; the message says what would."""


@dataclass(frozen=True)
class Comparison:
    """`eval/accuracy`, higher is better; `eval/mean_tokens:lower`."""

    name: str
    lower_is_better: bool = False

    def __str__(self) -> str:
        return f"{self.name}{' (lower is better)' if self.lower_is_better else ''} against the baseline"


@dataclass(frozen=True)
class Bounds:
    tolerance: float = 0.0  # how much worse is borne
    sigma: float | None = None  # of one run, where it is known


def parse_comparison(text: str) -> Comparison:
    name, _, direction = text.partition(":")
    if not name or direction not in ("", "higher", "lower"):
        raise NoBaseline(f"{text!r} is no comparison; write METRIC, METRIC:higher or METRIC:lower")
    return Comparison(name, direction == "lower")


def read_baselines(client: Client, texts: list[str]) -> list[Baseline]:
    """Each as a run or as the numbers of a file. Raises NoBaseline; NotFound for a run or alias."""
    return [_read(client, text) for text in texts]


def compare(
    client: Client,
    run: Run,
    comparison: Comparison,
    baselines: list[Baseline],
    bounds: Bounds,
) -> Check:
    name = comparison.name
    candidate = with_interval(client, run, name)
    if candidate is None:
        return _missing(comparison, f"run {run.id} has no {name}")
    theirs: list[Measured] = []
    for baseline in baselines:
        if isinstance(baseline, Run):
            found = with_interval(client, baseline, name)
            if found is None:
                return _missing(comparison, f"baseline run {baseline.id} has no {name}")
            theirs.append(found)
        elif name not in baseline:
            return _missing(
                comparison, f"the baseline file has no {name}; it has {', '.join(baseline) or 'nothing'}"
            )
        else:
            theirs += baseline[name]
    mean = sum(measured.value for measured in theirs) / len(theirs)
    gain = (mean - candidate.value) if comparison.lower_is_better else (candidate.value - mean)
    noise = band(candidate, theirs, stated_sigma=bounds.sigma)
    verdict = judge(gain, tolerance=bounds.tolerance, noise=noise)
    return Check(
        "comparison", str(comparison), verdict, _why(verdict, candidate.value, mean, gain, bounds, noise),
        candidate.value, mean, None if noise is None else noise.half,
    )  # fmt: skip


def _why(verdict: Verdict, value: float, mean: float, gain: float, bounds: Bounds, noise: Band | None) -> str:
    said = f"{value:.6g} against {mean:.6g} ({'better' if gain >= 0 else 'worse'} by {abs(gain):.4g}"
    said += f", {bounds.tolerance:g} is tolerated)" if bounds.tolerance else ")"
    if noise is not None:
        said += f"; noise ±{noise.half:.4g} ({noise.source})"
    elif verdict is Verdict.INVESTIGATE:
        said += "; nothing is known of the noise: name several baseline runs, or give --sigma"
    return said


def _missing(comparison: Comparison, why: str) -> Check:
    return Check("comparison", str(comparison), Verdict.FAIL, why)


def _read(client: Client, text: str) -> Baseline:
    kind, colon, name = text.partition(":")
    if colon and kind == "run" and name:
        return client.runs.get(name)
    if colon and kind == "alias" and name:
        return client.runs.get(client.checkpoints.resolve(name).run.id)
    path = Path(text)
    if not path.is_file():
        raise NoBaseline(f"{text!r} is no baseline: {FORMS}")
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise NoBaseline(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise NoBaseline(f"{path} must hold an object from metric to number or numbers")
    return {str(metric): _numbers(path, metric, value) for metric, value in document.items()}


def _numbers(path: Path, metric: str, value: object) -> list[Measured]:
    values = value if isinstance(value, list) else [value]
    numbers = [float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if not numbers or len(numbers) < len(values):
        raise NoBaseline(f"{path}: {metric} is {value!r}; a number, or a list of the numbers of several runs")
    return [Measured(number) for number in numbers]
