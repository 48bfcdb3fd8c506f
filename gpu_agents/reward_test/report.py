"""Builds the report of a reward test from scored samples. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from typing import Any, Literal

from gpu_agents.reward_test.adversarial import LEAKED_ANSWER, PROBES
from gpu_agents.reward_test.types import MODEL, STORED, ScoredSample, ScoreResult

MAX_EXAMPLES = 5
EXCERPT_CHARACTERS = 300
MAX_PROBE_SUCCESS_RATE = 0.1  # of the rows on which a probe may succeed by chance
MAX_ZERO_VARIANCE_RATE = 0.9
MAX_LATENCY_FRACTION = 0.5  # of the reward's timeout

Level = Literal["red", "amber", "note"]


def build_report(
    scored: Sequence[ScoredSample],
    *,
    rows: int,
    success_score: float,
    timeout_seconds: float,
    max_error_rate: float,
) -> dict[str, Any]:
    """Return the report as JSON. `scored` must not be empty."""
    calls = [outcome for item in scored for outcome in (item.first, item.second)]
    document: dict[str, Any] = {
        "rows": rows,
        "calls": len(calls),
        "sources": _count(scored),
        "determinism": _determinism(scored),
        "latency_seconds": _latency(calls),
        "exceptions": _exceptions(scored, calls),
        "range": _range(scored),
        "zero_variance_frac": _zero_variance_frac(scored),
        "probes": {
            name: _probe_result(scored, name, success_score) for name in PROBES if _from_sources(scored, name)
        },
    }
    reasons = find_reasons(document, timeout_seconds=timeout_seconds, max_error_rate=max_error_rate)
    levels = {reason["level"] for reason in reasons}
    document["reasons"] = reasons
    document["result"] = "red" if "red" in levels else "amber" if "amber" in levels else "green"
    return document


def find_reasons(
    document: dict[str, Any], *, timeout_seconds: float, max_error_rate: float
) -> list[dict[str, str]]:
    reasons: list[dict[str, str]] = []

    def say(level: Level, code: str, message: str) -> None:
        reasons.append({"level": level, "code": code, "message": message})

    exceptions = document["exceptions"]
    if exceptions["count"]:
        level: Level = "red" if exceptions["share"] > max_error_rate else "amber"
        say(
            level, "exceptions",
            f"{exceptions['count']} of {document['calls']} calls returned no score; first error: "
            f"{exceptions['examples'][0]['error']}",
        )  # fmt: skip
    differing = document["determinism"]["differing"]
    if differing:
        share = differing / document["determinism"]["checked"]
        say(
            "red" if share > 0.01 else "amber", "not_deterministic",
            f"{differing} of {document['determinism']['checked']} completions received two different scores",
        )  # fmt: skip
    span = document["range"]
    if span is not None and span["distinct"] == 1 and span["scored"] > 1:
        say("red", "constant", f"every completion scored {span['min']:g}, so there is no learning signal")
    for name, probe in document["probes"].items():
        _check_probe(say, name, probe, document["range"])
    variance = document["zero_variance_frac"]
    if variance is not None and variance >= MAX_ZERO_VARIANCE_RATE:
        say(
            "amber", "zero_variance",
            f"in {variance:.0%} of the groups all completions scored the same: no gradient under group "
            "normalization. Use easier or harder rows, or a warm start",
        )  # fmt: skip
    latency = document["latency_seconds"]
    if latency is not None and latency["p95"] > MAX_LATENCY_FRACTION * timeout_seconds:
        say(
            "amber", "slow",
            f"p95 latency is {latency['p95']:.2f} s; the timeout of a call is {timeout_seconds:g} s",
        )  # fmt: skip
    return reasons


def _check_probe(say: Any, name: str, probe: dict[str, Any], span: dict[str, Any] | None) -> None:
    if probe["scored"] == 0:
        return
    if name == LEAKED_ANSWER:
        if probe["success_frac"] < 0.5:
            say(
                "note", "bare_answer_is_not_enough",
                f"the bare answer succeeds on {probe['success_frac']:.0%} of the rows: the reward requires a format, "
                "so the prompt must ask for it",
            )  # fmt: skip
        return
    if probe["success_frac"] >= MAX_PROBE_SUCCESS_RATE:
        say(
            "red", f"probe_{name}",
            f"the probe {name!r} succeeds on {probe['success_frac']:.0%} of the rows (mean {probe['mean']:g})",
        )  # fmt: skip
    elif span is not None and span["model_mean"] is not None and probe["mean"] > span["model_mean"]:
        say(
            "amber", f"probe_{name}",
            f"the probe {name!r} scores {probe['mean']:g} on average, sampled completions {span['model_mean']:g}",
        )  # fmt: skip


def _from_sources(scored: Sequence[ScoredSample], *sources: str) -> list[ScoredSample]:
    return [item for item in scored if item.sample.source in sources]


def _count(scored: Sequence[ScoredSample]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for item in scored:
        counts[item.sample.source] += 1
    return dict(counts)


def _determinism(scored: Sequence[ScoredSample]) -> dict[str, Any]:
    differing = [item for item in scored if item.differs]
    return {
        "checked": len(scored),
        "differing": len(differing),
        "examples": [
            {**_excerpt(item), "scores": [item.first.score, item.second.score]}
            for item in differing[:MAX_EXAMPLES]
        ],
    }


def _latency(calls: Sequence[ScoreResult]) -> dict[str, float] | None:
    seconds = sorted(call.seconds for call in calls if not call.error)
    if not seconds:
        return None
    return {"p50": _percentile(seconds, 0.5), "p95": _percentile(seconds, 0.95), "max": seconds[-1]}


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def _exceptions(scored: Sequence[ScoredSample], calls: Sequence[ScoreResult]) -> dict[str, Any]:
    count = sum(bool(call.error) for call in calls)
    failed = [item for item in scored if item.first.error or item.second.error]
    return {
        "count": count,
        "share": count / len(calls),
        "examples": [
            {**_excerpt(item), "error": item.first.error or item.second.error}
            for item in failed[:MAX_EXAMPLES]
        ],
    }


def _range(scored: Sequence[ScoredSample]) -> dict[str, Any] | None:
    values = [item.score for item in scored if item.score is not None]
    if not values:
        return None
    sampled = [item.score for item in _from_sources(scored, MODEL, STORED) if item.score is not None]
    return {
        "min": min(values),
        "max": max(values),
        "mean": sum(values) / len(values),
        "distinct": len(set(values)),
        "scored": len(values),
        "model_mean": sum(sampled) / len(sampled) if sampled else None,
    }


def _zero_variance_frac(scored: Sequence[ScoredSample]) -> float | None:
    """Over rows with at least two sampled completions; None without such rows."""
    groups: dict[int, list[float]] = defaultdict(list)
    for item in _from_sources(scored, MODEL, STORED):
        if item.score is not None:
            groups[item.sample.row].append(item.score)
    counted = [scores for scores in groups.values() if len(scores) > 1]
    if not counted:
        return None
    return sum(len(set(scores)) == 1 for scores in counted) / len(counted)


def _probe_result(scored: Sequence[ScoredSample], name: str, success_score: float) -> dict[str, Any]:
    items = _from_sources(scored, name)
    values = [item.score for item in items if item.score is not None]
    best = max((item for item in items if item.score is not None), key=lambda i: i.score or 0.0, default=None)
    return {
        "tried": len(items),
        "scored": len(values),
        "mean": sum(values) / len(values) if values else None,
        "max": max(values, default=None),
        "success_frac": sum(value >= success_score for value in values) / len(values) if values else 0.0,
        "example": _excerpt(best) if best is not None else None,
    }


def _excerpt(item: ScoredSample) -> dict[str, Any]:
    sample = item.sample
    return {"row": sample.row, "source": sample.source, "completion": sample.completion[:EXCERPT_CHARACTERS]}
