"""Types of reward functions, which map one completion to one score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from oolong.contracts.run_spec import Section, option_faults

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, kw_only=True)
class Completion:
    prompt: str
    text: str  # decoded, special tokens removed
    answer: str
    finish_reason: str  # stop, length
    row: int = -1
    purpose: Literal["training", "evaluation"] = "training"


@dataclass(frozen=True, kw_only=True)
class Score:
    """A score with details. Functions without details return a plain number."""

    value: float
    parts: dict[str, float] = field(default_factory=dict)  # each part's unweighted score
    result: str = ""  # exact, wrong_answer, time_limit ...
    forgeable: bool = False  # the completion could forge it (see asserts of the code reward)
    text: str = ""  # what a judge wrote, for people


class InvalidOptions(ValueError):
    """Unknown reward function or invalid options. The code not_supported_yet marks possible future features."""

    def __init__(self, message: str, *, code: str = "unknown_option") -> None:
        super().__init__(message)
        self.code = code


class ScoringError(Exception):
    """The function cannot score this completion. Its group fails; the score is never 0."""


class VerifierFailed(Exception):
    """The function hung, crashed or raised. The call is retried."""


class SandboxFailed(Exception):
    """The sandbox itself failed. The call is retried."""


Reward = Callable[[Completion], "float | Score"]
Factory = Callable[[dict[str, Any]], Reward]


class Scorer(Protocol):
    """Interface of reward functions in this process, in a child process, or in the sandbox."""

    async def start(self) -> None: ...

    async def score(self, completion: Completion) -> Score:
        """Raises ScoringError, VerifierFailed, SandboxFailed."""

    async def close(self) -> None: ...


def as_score(result: float | Score) -> Score:
    return result if isinstance(result, Score) else Score(value=float(result))


def read_options(model: type[Options], options: dict[str, Any], *, reward: str) -> Options:
    """Parse the options of a built-in reward. Raises InvalidOptions with all errors."""
    errors = option_faults(reward, options)
    if errors:
        text = "; ".join(f"options{fault.pointer}: {fault.message}" for fault in errors)
        raise InvalidOptions(f"reward {reward}: {text}")
    return model.model_validate(options)
