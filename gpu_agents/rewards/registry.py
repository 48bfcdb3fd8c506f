"""Built-in reward functions by name. To add one: a file with `build(options)` and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_agents.rewards import exact_match, format_check, length, math_answer
from gpu_agents.rewards.code_tests import CodeTests
from gpu_agents.rewards.composite import Composite, Part, read_parts
from gpu_agents.rewards.pool import ChildPool
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.remote.endpoint import RemoteContext
from gpu_agents.rewards.remote.http_reward import HttpReward
from gpu_agents.rewards.remote.judge import Judge
from gpu_agents.rewards.reward import Factory, InvalidOptions, Reward, Scorer
from gpu_agents.rewards.sandboxes import Sandboxes
from gpu_agents.rewards.service import InThisProcess
from gpu_agents.rewards.user_function import UserFunction

# Pure functions of the text.
REWARDS: dict[str, Factory] = {
    "exact_match": exact_match.build,
    "math": math_answer.build,
    "format": format_check.build,
    "length": length.build,
}
# Rewards that run the policy's programs in a sandbox.
SANDBOXED: dict[str, Callable[[dict[str, Any], Sandboxes], Scorer]] = {
    "code": CodeTests,
}
# Rewards that a service elsewhere gives.
REMOTE: dict[str, type[HttpReward | Judge]] = {
    "http": HttpReward,
    "judge": Judge,
}
CHILDREN = 2


@dataclass(frozen=True, kw_only=True)
class ScorerContext:
    """What a scorer needs besides its options."""

    sandboxes: Sandboxes
    timeout_seconds: float = 15.0
    remote: RemoteContext = field(default_factory=lambda: RemoteContext(counts=RemoteCounts()))


def may_hang(name: str, options: dict[str, Any]) -> bool:
    """Whether some text can make the function run forever: symbolic algebra, users' regular expressions."""
    return name == "math" or "pattern" in options


def build_scorer(name: str, options: dict[str, Any], context: ScorerContext) -> Scorer:
    """Raises InvalidOptions for an unknown name or option."""
    if name == "composite":
        return Composite(
            [
                Part(part.label, part.weight, build_scorer(part.name, part.options, context))
                for part in read_parts(options)
            ]
        )
    if name in SANDBOXED:
        return SANDBOXED[name](options, context.sandboxes)
    if name in REMOTE:
        return REMOTE[name](options, context.remote, timeout_seconds=context.timeout_seconds)
    reward = build_reward(name, options)
    if may_hang(name, options):
        return ChildPool(REWARDS[name], options, size=CHILDREN, timeout_seconds=context.timeout_seconds)
    return InThisProcess(reward)


def build_user_scorer(source: str, options: dict[str, Any], context: ScorerContext) -> Scorer:
    return UserFunction(source, options, sandboxes=context.sandboxes, timeout_seconds=context.timeout_seconds)


def build_reward(name: str, options: dict[str, Any]) -> Reward:
    """Build a pure function of the text. Raises InvalidOptions for an unknown name or option."""
    if "source" in options or name == "source":
        raise InvalidOptions(
            "a spec cannot contain source code: upload the file (oolong function upload) and give reward.function",
            code="not_supported_yet",
        )
    if name not in REWARDS:
        names = sorted([*REWARDS, *SANDBOXED, *REMOTE, "composite"])
        raise InvalidOptions(f"unknown reward function {name!r}; known are {names}", code="not_supported_yet")
    return REWARDS[name](options)
