"""Summarize the demo's run from its records, read through the API."""

from __future__ import annotations

from typing import Any

from oolong.client import Client
from oolong.client.models import Run

MIN_REWARD_GAIN = 0.2
MAX_ENGINE_MISMATCH = 1e-4  # engine and trainer in float32 with the same weights
MIN_MISMATCH_TOKENS = 1000


def summarize(client: Client, run: Run, seconds: dict[str, float]) -> dict[str, Any]:
    """Build the content of `var/demo-summary.json`. Values that were not measured are None."""
    trainer = run.summary.get("trainer", {})
    controller = run.summary.get("controller", {})
    evaluation = run.summary.get("evaluation", {})
    engines = [value for name, value in sorted(run.summary.items()) if name.startswith("rollout-")]
    checkpoints = [item for item in client.checkpoints.list(run_id=run.id) if item.state == "STORED"]
    newest = max(checkpoints, key=lambda item: item.step, default=None)
    ledger = controller.get("ledger", {})
    sync = trainer.get("weight_sync", {})
    tokens = controller.get("tokens", {})
    return {
        "run_id": run.id,
        "status": run.status,
        "train_steps": trainer.get("train_steps"),
        "policy_version": run.policy_version,
        "reward": _reward(client, run.id),
        "eval": {
            "prompts": evaluation.get("end", {}).get("prompts"),
            "before": _scores(evaluation.get("start")),
            "after": _scores(evaluation.get("end")),
        },
        "staleness": controller.get("staleness"),
        "interruptions": controller.get("interruptions"),
        "trajectories_spanning_versions": controller.get("trajectories_spanning_versions"),
        "ledger": ledger,
        "ledger_balances": _balances(ledger),
        "tokens": {
            "generated": tokens.get("generated"),
            "trained": tokens.get("trained"),
            "lost": tokens.get("lost_to_recovery"),
            "dropped": tokens.get("dropped"),
        },
        "idle": {
            "trainer": trainer.get("idle", {}).get("trainer"),
            "rollout": _mean([engine.get("idle", {}).get("rollout") for engine in engines]),
        },
        "weight_sync": {
            "trainer_blocked_frac": sync.get("trainer_blocked_frac"),
            "engine_paused_frac": _mean([engine.get("engine_paused_frac") for engine in engines]),
            "mean_seconds": {
                "gather": sync.get("mean_seconds", {}).get("gather"),
                "write": sync.get("mean_seconds", {}).get("write"),
                "load": _mean([engine.get("mean_seconds", {}).get("load") for engine in engines]),
                "paused": _mean([engine.get("mean_seconds", {}).get("paused") for engine in engines]),
            },
            "versions": sync.get("versions"),
            "acks": controller.get("acks"),
        },
        "engine_mismatch": trainer.get("engine_mismatch"),
        "checkpoint": newest and {"id": newest.id, "sha256": newest.sha256, "bytes": newest.bytes},
        "seconds": seconds,
    }


def reward_gain(summary: dict[str, Any]) -> float | None:
    """Mean reward of the last ten train steps minus that of the first ten."""
    reward = summary["reward"]
    first, last = reward["first_10_steps_mean"], reward["last_10_steps_mean"]
    return None if first is None or last is None else last - first


def failed_checks(summary: dict[str, Any]) -> list[str]:
    """Describe each failed acceptance check of the demo; empty if all passed."""
    found = []
    gain = reward_gain(summary)
    if summary["status"] != "SUCCEEDED":
        found.append(f"the run ended {summary['status']}")
    if gain is None or not gain > MIN_REWARD_GAIN:  # also fails for NaN
        found.append(
            f"the reward rose by {gain if gain is None else round(gain, 3)}, required: more than {MIN_REWARD_GAIN}"
        )
    if not summary["trajectories_spanning_versions"]:
        found.append(
            "no trajectory spans two policy versions: no generation continued across a weight update"
        )
    mismatch = summary["engine_mismatch"] or {"tokens_compared": 0, "max": None}
    tokens, largest = mismatch["tokens_compared"], mismatch["max"]
    if tokens <= MIN_MISMATCH_TOKENS or largest is None or not largest < MAX_ENGINE_MISMATCH:
        found.append(
            f"engine and trainer differ by {largest} over {tokens} tokens; "
            f"required: less than {MAX_ENGINE_MISMATCH} over more than {MIN_MISMATCH_TOKENS}"
        )
    if not summary["ledger_balances"]:
        found.append("the group ledger does not balance")
    return found


def _reward(client: Client, run_id: str) -> dict[str, float | None]:
    """Mean rewards from the stored metric series, not from a job's summary."""
    by_step: dict[float, float] = {}
    for series in client.runs.metrics(run_id, names=["reward/mean"], axis="step").series:
        measured = zip(series.x, series.value, strict=True)
        by_step.update((step, value) for step, value in measured if value is not None)
    values = [by_step[step] for step in sorted(by_step)]
    enough = len(values) >= 20
    return {
        "first_10_steps_mean": sum(values[:10]) / 10 if enough else None,
        "last_10_steps_mean": sum(values[-10:]) / 10 if enough else None,
    }


def _scores(measured: dict[str, Any] | None) -> dict[str, float | None] | None:
    return measured and {"greedy": measured.get("greedy"), "sampled": measured.get("sampled")}


def _balances(ledger: dict[str, Any]) -> bool:
    if not ledger:
        return False
    states = sum(ledger[state] for state in ("trained", "waiting", "running", "buffered", "taken"))
    return bool(ledger["drawn"] == states + sum(ledger["dropped_by_reason"].values()))


def _mean(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None
