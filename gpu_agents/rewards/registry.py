"""Built-in reward functions by name. To add one: a file with `build(options)` and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_agents.rewards import exact_match, format_check, length, math_answer
from gpu_agents.rewards.code_tests import CodeTests
from gpu_agents.rewards.composite import Composite, Part, read_parts
from gpu_agents.rewards.pool import ChildPool
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
CHILDREN = 2


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a scorer is built with besides its options."""

    sandboxes: Sandboxes
    timeout_seconds: float = 15.0


def may_hang(name: str, options: dict[str, Any]) -> bool:
    """Whether a text can keep the function busy for ever: symbolic algebra, regular expressions of users."""
    return name == "math" or "pattern" in options


def build_scorer(name: str, options: dict[str, Any], place: Place) -> Scorer:
    """Raise InvalidOptions for a name or an option that there is not."""
    if name == "composite":
        return Composite(
            [
                Part(part.label, part.weight, build_scorer(part.name, part.options, place))
                for part in read_parts(options)
            ]
        )
    if name in SANDBOXED:
        return SANDBOXED[name](options, place.sandboxes)
    reward = build_reward(name, options)
    if may_hang(name, options):
        return ChildPool(REWARDS[name], options, size=CHILDREN, timeout_seconds=place.timeout_seconds)
    return InThisProcess(reward)


def build_user_scorer(source: str, options: dict[str, Any], place: Place) -> Scorer:
    return UserFunction(source, options, sandboxes=place.sandboxes, timeout_seconds=place.timeout_seconds)


def build_reward(name: str, options: dict[str, Any]) -> Reward:
    """A function of the text alone. Raise InvalidOptions for a name or an option that there is not."""
    if "source" in options or name == "source":
        raise InvalidOptions(
            "a spec holds no source: upload the file (oolong function upload) and give reward.function",
            code="not_supported_yet",
        )
    if name not in REWARDS:
        names = sorted([*REWARDS, *SANDBOXED, "composite"])
        raise InvalidOptions(
            f"there is no reward function {name!r}; there are {names}", code="not_supported_yet"
        )
    return REWARDS[name](options)
