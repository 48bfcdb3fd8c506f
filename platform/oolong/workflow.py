"""What a workflow is given: one rollout of one prompt, and the only ways to make it longer.

A workflow is `async def run(episode, …) -> float`: it makes a trajectory and returns what it is worth (the reward is
reward.scale * worth + reward.bias). Those of Oolong and those of users are written against this file alone.

A workflow never holds tokens of its own. What the policy samples is kept as sampled, ids, log-probabilities and
versions, and is never tokenised again; what the environment says is tokenised alone and has no part in the loss.

A workflow that says `migratable` may be stopped at any `await` and run again from its start on another engine. It is
then told what it was told before, turn by turn and score by score, until it stands where it was: so what it does
must follow from the episode alone, not from the time, from chance, or from anything that it keeps elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class WorkflowFailed(Exception):
    """The rollout cannot be finished; its group is failed with workflow_error, never scored 0."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind  # counted by kind: diverged, nothing_sampled, out_of_room, sandbox ...


class OutOfRoom(WorkflowFailed):
    """What was to be added leaves no room for an answer. A workflow may catch it, and end with what there is."""

    def __init__(self, wanted: int, room: int) -> None:
        self.wanted = wanted
        self.room = room
        super().__init__(
            "out_of_room",
            f"{wanted} tokens were to be added and {room} are left of the trajectory (workflow.max_trajectory_tokens, "
            "the model's context), one of them for the answer",
        )


@dataclass(frozen=True, kw_only=True)
class PolicyTurn:
    """What the policy said in one go."""

    token_ids: list[int]  # the stop token included
    text: str  # without special tokens
    finish_reason: Literal["stop", "length"]


class Episode(Protocol):
    """One rollout of one prompt. Every wait hides interruptions, engine deaths and weight updates."""

    @property
    def prompt(self) -> str:
        """The rendered prompt."""

    @property
    def prompt_token_ids(self) -> list[int]: ...

    @property
    def answer(self) -> str:
        """The row's answer, which the policy must not see."""

    @property
    def row(self) -> int:
        """The row's place in the dataset version."""

    @property
    def context_token_ids(self) -> list[int]:
        """The prompt and everything so far."""

    @property
    def room_tokens(self) -> int:
        """Tokens that the trajectory can still grow by, the environment's included."""

    async def sample(
        self, prompt_ids: Sequence[int] | None = None, *, max_new_tokens: int | None = None
    ) -> PolicyTurn:
        """Let the policy go on from the context, at most rollout.max_new_tokens for the turn.

        With `prompt_ids` the context is first made equal to them: they must begin with the context so far, and what
        they add becomes the environment's. Raises WorkflowFailed (diverged) where they do not, OutOfRoom.
        """

    async def score(self, text: str | None = None) -> float:
        """The reward function's value of `text`, by default the policy's last turn, for this row."""

    async def execute(self, code: str, *, max_output_tokens: int = 256) -> str:
        """Run a Python program in the run's sandbox: what it printed, or how it failed, as text for the policy.

        Of a longer output the beginning and the end are kept, half of `max_output_tokens` each. A program that
        raises or runs too long is an answer; only a sandbox that fails is WorkflowFailed (sandbox).
        """

    async def append_messages(self, messages: Sequence[Mapping[str, str]]) -> None:
        """Add what the environment says as chat messages, and the beginning of the policy's next turn.

        Only after a turn of the policy. Raises OutOfRoom and then adds nothing.
        """

    async def append_environment_tokens(self, token_ids: Sequence[int]) -> None:
        """Add ids as they are: without a part in the loss, with log-probability 0. Raises OutOfRoom."""
