"""From scored samples to a report with a verdict: pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from typing import Any, Literal

from gpu_agents.bench.cheats import CHEATS, LEAKED_ANSWER
from gpu_agents.bench.nouns import MODEL, STORED, Outcome, Scored

EXAMPLES = 5
EXCERPT = 300
CHEAT_SHARE = 0.1  # of the rows on which a cheat may count as right by chance
ZERO_VARIANCE_SHARE = 0.9
SLOW_SHARE = 0.5  # of the reward's own time limit

Level = Literal["red", "amber", "note"]


def report(
    scored: Sequence[Scored],
    *,
    rows: int,
    success_score: float,
    timeout_seconds: float,
    max_error_share: float,
) -> dict[str, Any]:
    """The report as JSON. `scored` may not be empty."""
    calls = [outcome for item in scored for outcome in (item.first, item.second)]
    document: dict[str, Any] = {
        "rows": rows,
        "calls": len(calls),
        "sources": _count(scored),
        "determinism": _determinism(scored),
        "latency_seconds": _latency(calls),
        "exceptions": _exceptions(scored, calls),
        "range": _range(scored),
        "zero_variance_share": _zero_variance_share(scored),
        "cheats": {name: _cheat(scored, name, success_score) for name in CHEATS if _of(scored, name)},
    }
    reasons = reasons_of(document, timeout_seconds=timeout_seconds, max_error_share=max_error_share)
    levels = {reason["level"] for reason in reasons}
    document["reasons"] = reasons
    document["verdict"] = "red" if "red" in levels else "amber" if "amber" in levels else "green"
    return document


def reasons_of(
    document: dict[str, Any], *, timeout_seconds: float, max_error_share: float
) -> list[dict[str, str]]:
    reasons: list[dict[str, str]] = []

    def say(level: Level, code: str, message: str) -> None:
        reasons.append({"level": level, "code": code, "message": message})

    exceptions = document["exceptions"]
    if exceptions["count"]:
        level: Level = "red" if exceptions["share"] > max_error_share else "amber"
        say(
            level, "exceptions",
            f"{exceptions['count']} of {document['calls']} calls gave no score; the first: "
            f"{exceptions['examples'][0]['error']}",
        )  # fmt: skip
    differing = document["determinism"]["differing"]
    if differing:
        share = differing / document["determinism"]["checked"]
        say(
            "red" if share > 0.01 else "amber", "not_deterministic",
            f"{differing} of {document['determinism']['checked']} completions got two different scores",
        )  # fmt: skip
    span = document["range"]
    if span is not None and span["distinct"] == 1 and span["scored"] > 1:
        say("red", "constant", f"every completion got {span['min']:g}: there is nothing to learn from")
    for name, cheat in document["cheats"].items():
        _judge_cheat(say, name, cheat, document["range"])
    variance = document["zero_variance_share"]
    if variance is not None and variance >= ZERO_VARIANCE_SHARE:
        say(
            "amber", "zero_variance",
            f"in {variance:.0%} of the groups all completions got the same score: no gradient under group "
            "normalisation. Take easier or harder rows, or a warm start",
        )  # fmt: skip
    latency = document["latency_seconds"]
    if latency is not None and latency["p95"] > SLOW_SHARE * timeout_seconds:
        say(
            "amber", "slow",
            f"p95 is {latency['p95']:.2f} s of the {timeout_seconds:g} s that one call may take",
        )  # fmt: skip
    return reasons


def _judge_cheat(say: Any, name: str, cheat: dict[str, Any], span: dict[str, Any] | None) -> None:
    if cheat["scored"] == 0:
        return
    if name == LEAKED_ANSWER:
        if cheat["success_share"] < 0.5:
            say(
                "note", "bare_answer_is_not_enough",
                f"the bare answer counts as right on {cheat['success_share']:.0%} of the rows: the reward wants a "
                "form, so the prompt must ask for it",
            )  # fmt: skip
        return
    if cheat["success_share"] >= CHEAT_SHARE:
        say(
            "red", f"cheat_{name}",
            f"the cheat {name!r} counts as right on {cheat['success_share']:.0%} of the rows (mean {cheat['mean']:g})",
        )  # fmt: skip
    elif span is not None and span["model_mean"] is not None and cheat["mean"] > span["model_mean"]:
        say(
            "amber", f"cheat_{name}",
            f"the cheat {name!r} scores {cheat['mean']:g} on average, the sampled completions {span['model_mean']:g}",
        )  # fmt: skip


def _of(scored: Sequence[Scored], *sources: str) -> list[Scored]:
    return [item for item in scored if item.sample.source in sources]


def _count(scored: Sequence[Scored]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for item in scored:
        counts[item.sample.source] += 1
    return dict(counts)


def _determinism(scored: Sequence[Scored]) -> dict[str, Any]:
    differing = [item for item in scored if item.differs]
    return {
        "checked": len(scored),
        "differing": len(differing),
        "examples": [
            {**_shown(item), "scores": [item.first.score, item.second.score]} for item in differing[:EXAMPLES]
        ],
    }


def _latency(calls: Sequence[Outcome]) -> dict[str, float] | None:
    seconds = sorted(call.seconds for call in calls if not call.error)
    if not seconds:
        return None
    return {"p50": _percentile(seconds, 0.5), "p95": _percentile(seconds, 0.95), "max": seconds[-1]}


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def _exceptions(scored: Sequence[Scored], calls: Sequence[Outcome]) -> dict[str, Any]:
    count = sum(bool(call.error) for call in calls)
    failed = [item for item in scored if item.first.error or item.second.error]
    return {
        "count": count,
        "share": count / len(calls),
        "examples": [
            {**_shown(item), "error": item.first.error or item.second.error} for item in failed[:EXAMPLES]
        ],
    }


def _range(scored: Sequence[Scored]) -> dict[str, Any] | None:
    values = [item.score for item in scored if item.score is not None]
    if not values:
        return None
    sampled = [item.score for item in _of(scored, MODEL, STORED) if item.score is not None]
    return {
        "min": min(values),
        "max": max(values),
        "mean": sum(values) / len(values),
        "distinct": len(set(values)),
        "scored": len(values),
        "model_mean": sum(sampled) / len(sampled) if sampled else None,
    }


def _zero_variance_share(scored: Sequence[Scored]) -> float | None:
    """Of the rows with two or more sampled completions; None where there is no such row."""
    groups: dict[int, list[float]] = defaultdict(list)
    for item in _of(scored, MODEL, STORED):
        if item.score is not None:
            groups[item.sample.row].append(item.score)
    counted = [scores for scores in groups.values() if len(scores) > 1]
    if not counted:
        return None
    return sum(len(set(scores)) == 1 for scores in counted) / len(counted)


def _cheat(scored: Sequence[Scored], name: str, success_score: float) -> dict[str, Any]:
    items = _of(scored, name)
    values = [item.score for item in items if item.score is not None]
    best = max((item for item in items if item.score is not None), key=lambda i: i.score or 0.0, default=None)
    return {
        "tried": len(items),
        "scored": len(values),
        "mean": sum(values) / len(values) if values else None,
        "max": max(values, default=None),
        "success_share": sum(value >= success_score for value in values) / len(values) if values else 0.0,
        "example": _shown(best) if best is not None else None,
    }


def _shown(item: Scored) -> dict[str, Any]:
    sample = item.sample
    return {"row": sample.row, "source": sample.source, "completion": sample.completion[:EXCERPT]}
