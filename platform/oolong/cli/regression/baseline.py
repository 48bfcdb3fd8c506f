"""Baselines of a comparison: other runs, the run behind an alias, or numbers from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oolong.cli.regression.noise import Bounds, Measured, NoiseBand, Paired, evaluate, noise_band
from oolong.cli.regression.prompt_scores import NotPaired, Side, pair_runs
from oolong.cli.regression.results import Check, RegressionResult
from oolong.cli.regression.values import with_interval
from oolong.client import Client
from oolong.client.models import Run

FORMS = 'run:ID, alias:NAME or a JSON file such as {"eval/accuracy": [0.81, 0.80, 0.82]}'


@dataclass(frozen=True)
class BaselineRun:
    """`step` is set for an alias: compare with the values at its checkpoint's step, not the run's last."""

    run: Run
    step: int | None = None


Baseline = BaselineRun | Mapping[str, list[Measured]]


class NoBaseline(ValueError):
    """The text names no baseline; the message lists the accepted forms."""


@dataclass(frozen=True)
class Comparison:
    """`eval/accuracy`, higher is better; `eval/mean_tokens:lower`."""

    name: str
    lower_is_better: bool = False

    def __str__(self) -> str:
        return f"{self.name}{' (lower is better)' if self.lower_is_better else ''} against the baseline"


def parse_comparison(text: str) -> Comparison:
    name, _, direction = text.partition(":")
    if not name or direction not in ("", "higher", "lower"):
        raise NoBaseline(f"{text!r} is no comparison; write METRIC, METRIC:higher or METRIC:lower")
    return Comparison(name, direction == "lower")


def read_baselines(client: Client, texts: list[str]) -> list[Baseline]:
    """Resolve each to a run or to the numbers of a file. Raises NoBaseline; NotFound for a run or alias."""
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
        if isinstance(baseline, BaselineRun):
            found = with_interval(client, baseline.run, name, step=baseline.step)
            if found is None:
                at = "" if baseline.step is None else f" at step {baseline.step}, which its checkpoint is of"
                return _missing(comparison, f"baseline run {baseline.run.id} has no {name}{at}")
            theirs.append(found)
        elif name not in baseline:
            return _missing(
                comparison, f"the baseline file has no {name}; it has {', '.join(baseline) or 'nothing'}"
            )
        else:
            theirs += baseline[name]
    mean = sum(measured.value for measured in theirs) / len(theirs)
    paired, unpaired_because = _paired(client, run, name, baselines, candidate, theirs)
    gain = candidate.value - mean if paired is None else paired.gain
    gain = -gain if comparison.lower_is_better else gain
    noise = noise_band(candidate, theirs, bounds, paired=paired)
    result = evaluate(gain, bounds, noise)
    why = _why(result, f"{candidate.value:.6g} against {mean:.6g}", gain, bounds, noise)
    if paired is not None and paired.left_out:
        why += f"; {paired.left_out} prompts are in one of the two evaluations only and left out"
    if unpaired_because:
        why += f"; not paired: {unpaired_because}"
    return Check(
        "comparison",
        str(comparison),
        result,
        why,
        candidate.value,
        mean,
        None if noise is None else noise.half,
    )


def _paired(
    client: Client,
    run: Run,
    name: str,
    baselines: list[Baseline],
    candidate: Measured,
    theirs: list[Measured],
) -> tuple[Paired | None, str]:
    """Pair with a single baseline run by prompt, or return the reason why not ("" where seeds give the noise)."""
    if len(theirs) > 1:
        return None, ""
    (baseline,) = baselines
    if not isinstance(baseline, BaselineRun):
        return None, "a file has no scores by prompt"
    try:
        mine, other = Side(run.id, candidate), Side(baseline.run.id, theirs[0])
        return pair_runs(client, mine, other, name), ""
    except NotPaired as error:
        return None, str(error)


def _why(result: RegressionResult, values: str, gain: float, bounds: Bounds, noise: NoiseBand | None) -> str:
    text = f"{values} ({'better' if gain >= 0 else 'worse'} by {abs(gain):.4g}"
    text += f", {bounds.tolerance:g} is tolerated)" if bounds.tolerance else ")"
    if noise is not None:
        text += f"; noise up to {noise.half:.4g} at {bounds.confidence:.4g} confidence ({noise.source})"
        if result is RegressionResult.INVESTIGATE:
            text += f", more than --detect {bounds.detect:g}: evaluate more prompts"
    elif result is RegressionResult.INVESTIGATE:
        text += "; the noise is unknown: name several baseline runs, or give --sigma"
    return text


def _missing(comparison: Comparison, why: str) -> Check:
    return Check("comparison", str(comparison), RegressionResult.FAIL, why)


def _read(client: Client, text: str) -> Baseline:
    kind, colon, name = text.partition(":")
    if colon and kind == "run" and name:
        return BaselineRun(client.runs.get(name))
    if colon and kind == "alias" and name:
        checkpoint = client.checkpoints.resolve(name)
        return BaselineRun(client.runs.get(checkpoint.run.id), checkpoint.step)
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
