"""What a reward function is: from one completion to one score, by the completion alone."""

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
    """A score with what led to it. A function without more to say returns a plain number."""

    value: float
    parts: dict[str, float] = field(default_factory=dict)  # each part's own score, before its weight
    verdict: str = ""  # one word of the function's own: exact, wrong_answer, time_limit ...
    forgeable: bool = False  # the completion could have forged it (see the code reward's asserts)


class InvalidOptions(ValueError):
    """Options or a name that no reward function has; the message says what there is. Code not_supported_yet
    marks what the platform may learn later."""

    def __init__(self, message: str, *, code: str = "unknown_option") -> None:
        super().__init__(message)
        self.code = code


class ScoringError(Exception):
    """The function cannot score this completion, now or later; its group is failed, never scored 0."""


class VerifierFailed(Exception):
    """The function hung, died or raised: its own fault, not the completion's. Worth another try."""


class SandboxFailed(Exception):
    """The sandbox could not be made or broke by itself: not the program's fault. Worth another try."""


Reward = Callable[[Completion], "float | Score"]
Factory = Callable[[dict[str, Any]], Reward]


class Scorer(Protocol):
    """A reward function as the service calls it, wherever it runs: here, in a child process, in the sandbox."""

    async def start(self) -> None: ...

    async def score(self, completion: Completion) -> Score:
        """Raises ScoringError, VerifierFailed, SandboxFailed."""

    async def close(self) -> None: ...


def as_score(result: float | Score) -> Score:
    return result if isinstance(result, Score) else Score(value=float(result))


def read_options(model: type[Options], options: dict[str, Any], *, reward: str) -> Options:
    """The options of a built-in reward. Raises InvalidOptions with every fault of them."""
    faults = option_faults(reward, options)
    if faults:
        said = "; ".join(f"options{fault.pointer}: {fault.message}" for fault in faults)
        raise InvalidOptions(f"reward {reward}: {said}")
    return model.model_validate(options)
