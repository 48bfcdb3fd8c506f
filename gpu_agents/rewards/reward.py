"""What a reward function is: pure, from one completion to one score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Completion:
    prompt: str
    text: str  # decoded, special tokens removed
    answer: str
    finish_reason: str  # stop, length
    row: int = -1


class OptionsRefused(ValueError):
    """Options or a name that no reward function has; the message says what there is. Code not_supported_yet
    marks what the platform may learn later."""

    def __init__(self, message: str, *, code: str = "unknown_option") -> None:
        super().__init__(message)
        self.code = code


class NoScore(Exception):
    """The function cannot score this completion; its group is failed, never scored 0."""


Reward = Callable[[Completion], float]
Factory = Callable[[dict[str, Any]], Reward]


def refuse_unknown(options: dict[str, Any], known: set[str], *, reward: str) -> None:
    unknown = sorted(set(options) - known)
    if unknown:
        raise OptionsRefused(
            f"reward {reward} has no option {unknown[0]!r}; it has {sorted(known) or 'none'}"
        )
