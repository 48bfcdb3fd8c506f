"""The trainer's part of the run summary."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

REWARD_WINDOW = 10  # first and last steps whose mean reward is reported


@dataclass
class RunSummary:
    """Totals over the train steps. Rewards, tokens and skips continue across a resume; times cover one attempt."""

    seed: int = 1  # of the order of groups within a batch; a resumed run keeps the seed of its checkpoint
    first_rewards: list[float] = field(default_factory=list)
    last_rewards: list[float] = field(default_factory=list)
    tokens_trained: int = 0
    skipped_steps: int = 0
    steps: int = 0  # of this attempt
    versions_published: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    first_wait_seconds: float = 0.0  # includes the boot time of the engines
    on_policy_tokens: float = 0.0
    on_policy_total: float = 0.0
    on_policy_largest: float = 0.0

    def add_batch(self, metrics: dict[str, float]) -> None:
        """Add a step's training metrics. Called before its checkpoint is written, which stores these totals."""
        self.steps += 1
        self.tokens_trained += int(metrics["perf/trained_tokens"])
        reward = metrics["reward/mean"]
        if len(self.first_rewards) < REWARD_WINDOW:
            self.first_rewards.append(reward)
        self.last_rewards = [*self.last_rewards, reward][-REWARD_WINDOW:]
        tokens = metrics.get("mismatch/on_policy_tokens", 0.0)
        if tokens:
            self.on_policy_tokens += tokens
            self.on_policy_total += tokens * metrics["mismatch/on_policy_abs_mean"]
            self.on_policy_largest = max(self.on_policy_largest, metrics["mismatch/on_policy_abs_max"])

    def add_seconds(self, seconds: dict[str, float]) -> None:
        if not self.seconds:
            self.first_wait_seconds = seconds.get("wait_batch", 0.0)
        for phase, spent in seconds.items():
            self.seconds[phase] += spent

    def to_dict(self, *, version: int, probes: dict[str, float | int | None]) -> dict[str, Any]:
        """Return the value of the Summary line "trainer". Unmeasured values are absent."""
        total = sum(self.seconds.values())
        published = sum(self.seconds[phase] for phase in ("gather", "write", "announce"))
        summary: dict[str, Any] = {
            "train_steps": version,
            "policy_version": version,
            "steps_of_attempt": self.steps,
            "tokens_trained": self.tokens_trained,
            "skipped_steps": self.skipped_steps,
            "engine_mismatch": self._mismatch(probes),
            "seconds": {
                "step_total": total,
                "wait_batch": self.seconds["wait_batch"],
                "wait_first_batch": self.first_wait_seconds,
                "prepare": self.seconds["prepare"],
                "proximal": self.seconds["proximal"],
                **{phase: self.seconds[phase] for phase in ("reference", "values") if phase in self.seconds},
                "train": self.seconds["train"],
                "publish": published,
                "checkpoint": self.seconds["checkpoint"],
            },
        }
        if total:
            summary["idle"] = {"trainer": self.seconds["wait_batch"] / total}
            summary["weight_sync"] = {
                "trainer_blocked_frac": published / total,
                "mean_seconds": {
                    "gather": self.seconds["gather"] / max(1, self.steps),
                    "write": self.seconds["write"] / max(1, self.steps),
                },
                "versions": self.versions_published,
            }
        if self.last_rewards:
            summary["reward"] = {
                "first_10_steps_mean": sum(self.first_rewards) / len(self.first_rewards),
                "last_10_steps_mean": sum(self.last_rewards) / len(self.last_rewards),
            }
        return summary

    def _mismatch(self, probes: dict[str, float | int | None]) -> dict[str, Any]:
        """Mismatch on probes, and separately on on-policy training tokens: these include very unlikely tokens, whose
        log-probabilities are uncertain in the fifth digit even in float32."""
        mismatch: dict[str, Any] = dict(probes)
        mismatch["on_policy"] = {"tokens": int(self.on_policy_tokens)}
        if self.on_policy_tokens:
            mismatch["on_policy"]["mean_abs_logprob_diff"] = self.on_policy_total / self.on_policy_tokens
            mismatch["on_policy"]["max"] = self.on_policy_largest
        return mismatch
