"""The episode of one member: its workflow's wishes, carried out on the engine and written into the member.

A resumed member is replayed: its workflow runs from its start, and as long as the member has turns and outcomes from
an earlier worker, it gets those instead of new ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpu_agents.rollout.chat_template import ChatTemplate, InvalidModelFiles
from gpu_agents.rollout.engines.client import ModelLimits, Sampling
from gpu_agents.rollout.engines.errors import EngineUnavailable
from gpu_agents.rollout.worker.engine_handle import MAX_ENGINE_LOSSES_PER_REQUEST, EngineHandle
from gpu_agents.rollout.worker.permits import Permit
from gpu_agents.rollout.worker.rollout_state import RolloutState
from gpu_agents.rollout.worker.scoring import Scorer
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.rollout import Turn
from oolong.workflow import OutOfRoom, PolicyTurn, WorkflowFailed


class Interrupted(Exception):
    """The group was halted: what the member has so far is kept, and its workflow is not to go on."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One dataset row, rendered, with what its reward needs."""

    row: int
    token_ids: list[int]
    text: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    max_new_tokens: int  # of one turn
    max_trajectory_tokens: int | None  # of all turns; None: what the model's context holds
    model: ModelLimits

    def room_of(self, prompt: Prompt) -> int:
        room = self.model.context_tokens - len(prompt.token_ids)
        return room if self.max_trajectory_tokens is None else min(room, self.max_trajectory_tokens)


class Executor(Protocol):
    """Runs code of the policy; see `oolong.workflow.Episode.execute`."""

    async def execute(self, code: str) -> str: ...


def completion_seed(run_seed: int, *identity: str | int) -> int:
    """The seed of one completion, below 2^56. A request that goes on from its tokens has the same one: SGLang derives
    the random numbers of a token from seed and position, so an interruption changes none that come after it."""
    words = "/".join(map(str, (run_seed, *identity)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7])


@dataclass(frozen=True, kw_only=True)
class RolloutContext:
    """Where episodes of one worker are played: its engine, its scorer and the run's workflow."""

    workflow: Workflow
    slot: EngineHandle
    scorer: Scorer
    template: ChatTemplate
    limits: EpisodeLimits
    executor: Executor | None = None
    sampling_seed: int | None = None  # of the run, where every completion has a seed of its own

    def seed_of(self, *identity: str | int) -> int | None:
        return None if self.sampling_seed is None else completion_seed(self.sampling_seed, *identity)

    async def play(
        self,
        member: RolloutState,
        prompt: Prompt,
        *,
        temperature: float,
        interrupted: Callable[[], bool],
        place: Permit | None = None,
    ) -> float:
        """Run the workflow to its end; what the trajectory is worth. Raises Interrupted, WorkflowFailed,
        RewardFailed and EngineError."""
        episode = RolloutEpisode(self, member, prompt, temperature, interrupted, place)
        worth = await self.workflow.run(episode)
        if not member.sampled_tokens:
            raise WorkflowFailed("nothing_sampled", "the workflow ended before the policy had said anything")
        if member.score is None:
            member.score = worth
        return worth


class RolloutEpisode:
    """See `oolong.workflow.Episode`."""

    def __init__(
        self,
        stage: RolloutContext,
        member: RolloutState,
        prompt: Prompt,
        temperature: float,
        interrupted: Callable[[], bool],
        place: Permit | None,
    ) -> None:
        self._stage = stage
        self._member = member
        self._prompt = prompt
        self._temperature = temperature
        self._interrupted = interrupted
        self._place = place
        self._room = stage.limits.room_of(prompt)
        # How far the workflow has come; behind what the member has only while a resumed one is replayed.
        self._turns = 0
        self._tokens = 0
        self._outcomes = 0

    @property
    def prompt(self) -> str:
        return self._prompt.text

    @property
    def prompt_token_ids(self) -> list[int]:
        return list(self._prompt.token_ids)

    @property
    def answer(self) -> str:
        return self._prompt.answer

    @property
    def row(self) -> int:
        return self._prompt.row

    @property
    def context_token_ids(self) -> list[int]:
        return self._prompt.token_ids + self._member.token_ids[: self._tokens]

    @property
    def room_tokens(self) -> int:
        return self._room - self._tokens

    async def sample(
        self, prompt_ids: Sequence[int] | None = None, *, max_new_tokens: int | None = None
    ) -> PolicyTurn:
        if prompt_ids is not None:
            self._reach(list(prompt_ids))
        if max_new_tokens is not None and max_new_tokens < 1:
            raise WorkflowFailed("misuse", f"max_new_tokens={max_new_tokens} is not a number of tokens")
        if self.room_tokens < 1:
            raise OutOfRoom(1, self.room_tokens)
        most = self._stage.limits.max_new_tokens
        limit = min(most, max_new_tokens or most, self.room_tokens)
        member = self._member
        turn = self._recorded(sampled=True)
        if turn is None:
            member.begin_turn()
        if turn is None or turn.finish_reason is None:
            turn = await self._continue_turn(limit)
        token_ids = member.token_ids[self._tokens : self._tokens + turn.tokens]
        self._pass(turn)
        assert turn.finish_reason is not None
        return PolicyTurn(
            token_ids=token_ids,
            text=self._stage.template.decode(token_ids),
            finish_reason=turn.finish_reason,
        )

    async def score(self, text: str | None = None) -> float:
        said = self._last_turn_text() if text is None else text
        member = self._member

        async def ask() -> float:
            started = time.monotonic()
            reply = await self._stage.scorer.score(
                prompt=self._prompt.text,
                answer=self._prompt.answer,
                completion=said,
                finish_reason=member.finish_reason or "stop",
                row=self._prompt.row,
            )
            member.reward_seconds += time.monotonic() - started
            member.reward_parts, member.verdict = reply.parts, reply.verdict
            assert reply.score is not None
            return reply.score

        place = self._next_outcome()
        value = member.outcomes[place]
        if value is None:
            value = member.outcomes[place] = await ask()
        if not isinstance(value, float):
            raise _diverged(f"it asks for a score where it had asked for a text ({value!r:.80})")
        member.score = value
        return value

    async def execute(self, code: str, *, max_output_tokens: int = 256) -> str:
        member = self._member
        place = self._next_outcome()
        value = member.outcomes[place]
        if value is None:
            if self._stage.executor is None:
                raise WorkflowFailed("sandbox", "this run's reward service runs no code: there is no sandbox")
            output = await self._stage.executor.execute(code)
            value = member.outcomes[place] = self._cut(output, max_output_tokens)
            member.tool_calls += 1
        if not isinstance(value, str):
            raise _diverged(f"it asks for a text where it had asked for a score ({value!r:.80})")
        return value

    async def append_messages(self, messages: Sequence[Mapping[str, str]]) -> None:
        for message in messages:
            if not {"role", "content"} <= set(message):
                raise WorkflowFailed(
                    "misuse", f"{message!r:.200} is no message: it needs a role and a content"
                )
        said = self._turn_before()
        if said is None or not said.sampled:
            raise WorkflowFailed("misuse", "messages are added after a turn of the policy; there is none yet")
        last = self._member.token_ids[self._tokens - 1] if said.finish_reason == "stop" else None
        try:
            token_ids = self._stage.template.continuation(messages, stop_token=last)
        except InvalidModelFiles as error:
            raise WorkflowFailed("misuse", str(error)) from error
        self._append(token_ids)

    async def append_environment_tokens(self, token_ids: Sequence[int]) -> None:
        self._append(list(token_ids))

    # --- inside -------------------------------------------------------------------------------------------

    def _append(self, added: list[int]) -> None:
        if not added:
            return
        if len(added) >= self.room_tokens:
            raise OutOfRoom(len(added), self.room_tokens)
        self._check(added)
        turn = self._recorded(sampled=False)
        if turn is None:
            self._member.add_environment(added)
            turn = self._member.turns[-1]
        elif self._member.token_ids[self._tokens : self._tokens + turn.tokens] != added:
            raise _diverged("it adds other tokens of the environment than before")
        self._pass(turn)

    async def _continue_turn(self, limit: int) -> Turn:
        """Sample until the member's last turn is whole. Raises Interrupted; its tokens so far are kept.

        An abort returns partial tokens and the next request goes on from them; a dead engine loses those that it
        had not returned. Raises EngineUnavailable when one request has cost several engines their life.
        """
        member = self._member
        started = time.monotonic()
        deaths = 0
        if self._place is not None:
            self._place.take()
        try:
            while member.turns[-1].finish_reason is None:
                if self._interrupted():
                    raise Interrupted
                left = limit - member.turns[-1].tokens
                if left <= 0:
                    member.end_turn("length")
                    break
                # Request ids are of one length, so that none is a prefix of another: the engine matches prefixes.
                member.rid = uuid.uuid4().hex
                try:
                    generation = await self._stage.slot.generate(
                        self._prompt.token_ids + member.token_ids,
                        Sampling(max_new_tokens=left, temperature=self._temperature, seed=member.seed),
                        rid=member.rid,
                    )
                except EngineUnavailable:
                    deaths += 1
                    if deaths >= MAX_ENGINE_LOSSES_PER_REQUEST:
                        raise
                    await asyncio.sleep(0.5)  # until the supervisor has seen it too, and closed the slot
                    continue
                finally:
                    member.rid = ""
                member.add_sampled(generation)
            return member.turns[-1]
        finally:
            member.generate_seconds += time.monotonic() - started
            if self._place is not None:
                self._place.leave()

    def _cut(self, output: str, most: int) -> str:
        ids = self._stage.template.encode(output)
        if len(ids) <= most:
            return output
        head, tail = ids[: most - most // 2], ids[len(ids) - most // 2 :]
        decode = self._stage.template.decode
        return f"{decode(head)}\n[{len(ids) - most} tokens cut]\n{decode(tail)}"

    def _recorded(self, *, sampled: bool) -> Turn | None:
        """The member's turn at which the workflow stands, if it has one from an earlier worker."""
        if self._turns == len(self._member.turns):
            return None
        turn = self._member.turns[self._turns]
        if turn.sampled != sampled:
            raise _diverged("policy and environment do not take turns as before")
        return turn

    def _pass(self, turn: Turn) -> None:
        self._turns += 1
        self._tokens += turn.tokens

    def _turn_before(self) -> Turn | None:
        return self._member.turns[self._turns - 1] if self._turns else None

    def _last_turn_text(self) -> str:
        end = self._tokens
        for turn in reversed(self._member.turns[: self._turns]):
            if turn.sampled:
                return self._stage.template.decode(self._member.token_ids[end - turn.tokens : end])
            end -= turn.tokens
        raise WorkflowFailed("misuse", "there is nothing to score: the policy has not said anything yet")

    def _next_outcome(self) -> int:
        place = self._outcomes
        self._outcomes += 1
        if place == len(self._member.outcomes):
            self._member.outcomes.append(None)
        return place

    def _reach(self, prompt_ids: list[int]) -> None:
        context = self.context_token_ids
        if prompt_ids[: len(context)] != context:
            raise _diverged("the ids to go on from do not begin with the context so far")
        self._append(prompt_ids[len(context) :])

    def _check(self, token_ids: list[int]) -> None:
        vocabulary = self._stage.limits.model.vocabulary
        for token in token_ids:
            if type(token) is not int or not 0 <= token < vocabulary:
                raise WorkflowFailed(
                    "misuse", f"{token!r} is not a token id: an integer in [0, {vocabulary})"
                )


def _diverged(what: str) -> WorkflowFailed:
    return WorkflowFailed("diverged", f"the workflow does not do what it did before: {what}")
