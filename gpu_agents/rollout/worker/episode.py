"""The episode of one rollout: runs its workflow's requests on the engine and records them in the rollout.

A resumed rollout is replayed: the workflow runs from its start, and receives the turns and outcomes recorded by an
earlier worker until these are used up.
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
    """The group was halted: the rollout keeps its tokens, and the workflow stops."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One dataset row, rendered, with what its reward needs."""

    row: int
    token_ids: list[int]
    text: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    max_new_tokens: int  # per turn
    max_trajectory_tokens: int | None  # over all turns; None: the model's context
    model: ModelLimits

    def remaining_tokens(self, prompt: Prompt) -> int:
        room = self.model.context_tokens - len(prompt.token_ids)
        return room if self.max_trajectory_tokens is None else min(room, self.max_trajectory_tokens)


class Executor(Protocol):
    """Runs the policy's code; see `oolong.workflow.Episode.execute`."""

    async def execute(self, code: str) -> str: ...


def completion_seed(run_seed: int, *identity: str | int) -> int:
    """The seed of one completion, below 2^56. A request that resumes the completion uses the same seed: SGLang derives
    the random numbers of a token from seed and position, so an interruption does not change later tokens."""
    words = "/".join(map(str, (run_seed, *identity)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7])


@dataclass(frozen=True, kw_only=True)
class RolloutContext:
    """What the episodes of one worker share: its engine, its scorer and the run's workflow."""

    workflow: Workflow
    engine: EngineHandle
    scorer: Scorer
    template: ChatTemplate
    limits: EpisodeLimits
    executor: Executor | None = None
    sampling_seed: int | None = None  # the run's seed if rollout.repeatable_sampling is set

    def seed_of(self, *identity: str | int) -> int | None:
        return None if self.sampling_seed is None else completion_seed(self.sampling_seed, *identity)

    async def run(
        self,
        rollout: RolloutState,
        prompt: Prompt,
        *,
        temperature: float,
        interrupted: Callable[[], bool],
        permit: Permit | None = None,
    ) -> float:
        """Run the workflow and return the trajectory's value. Raises Interrupted, WorkflowFailed, RewardFailed and
        EngineError."""
        episode = RolloutEpisode(self, rollout, prompt, temperature, interrupted, permit)
        value = await self.workflow.run(episode)
        if not rollout.sampled_tokens:
            raise WorkflowFailed("nothing_sampled", "the workflow returned before it sampled a turn")
        if rollout.score is None:
            rollout.score = value
        return value


class RolloutEpisode:
    """See `oolong.workflow.Episode`."""

    def __init__(
        self,
        context: RolloutContext,
        rollout: RolloutState,
        prompt: Prompt,
        temperature: float,
        interrupted: Callable[[], bool],
        permit: Permit | None,
    ) -> None:
        self._context = context
        self._rollout = rollout
        self._prompt = prompt
        self._temperature = temperature
        self._interrupted = interrupted
        self._permit = permit
        self._room = context.limits.remaining_tokens(prompt)
        # The workflow's position: behind the recorded turns only while a resumed rollout is replayed.
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
        return self._prompt.token_ids + self._rollout.token_ids[: self._tokens]

    @property
    def room_tokens(self) -> int:
        return self._room - self._tokens

    async def sample(
        self, prompt_ids: Sequence[int] | None = None, *, max_new_tokens: int | None = None
    ) -> PolicyTurn:
        if prompt_ids is not None:
            self._extend_to(list(prompt_ids))
        if max_new_tokens is not None and max_new_tokens < 1:
            raise WorkflowFailed("misuse", f"max_new_tokens={max_new_tokens} is not a number of tokens")
        if self.room_tokens < 1:
            raise OutOfRoom(1, self.room_tokens)
        bound = self._context.limits.max_new_tokens
        limit = min(bound, max_new_tokens or bound, self.room_tokens)
        rollout = self._rollout
        turn = self._recorded(sampled=True)
        if turn is None:
            rollout.begin_turn()
        if turn is None or turn.finish_reason is None:
            turn = await self._continue_turn(limit)
        token_ids = rollout.token_ids[self._tokens : self._tokens + turn.tokens]
        self._advance(turn)
        assert turn.finish_reason is not None
        return PolicyTurn(
            token_ids=token_ids,
            text=self._context.template.decode(token_ids),
            finish_reason=turn.finish_reason,
        )

    async def score(self, text: str | None = None) -> float:
        completion = self._last_turn_text() if text is None else text
        rollout = self._rollout

        async def request_score() -> float:
            started = time.monotonic()
            timeline = self._context.engine.timeline
            scoring_since = timeline.now()
            reply = await self._context.scorer.score(
                prompt=self._prompt.text,
                answer=self._prompt.answer,
                completion=completion,
                finish_reason=rollout.finish_reason or "stop",
                row=self._prompt.row,
            )
            rollout.reward_seconds += time.monotonic() - started
            if rollout.group_id:
                timeline.add(
                    "reward",
                    start=scoring_since,
                    version=rollout.versions[-1] if rollout.versions else -1,
                    group_id=rollout.group_id,
                    member=rollout.index,
                )
            rollout.reward_parts, rollout.reward_result = reply.parts, reply.result
            rollout.reward_text = reply.text
            assert reply.score is not None
            return reply.score

        index = self._next_outcome()
        value = rollout.outcomes[index]
        if value is None:
            value = rollout.outcomes[index] = await request_score()
        if not isinstance(value, float):
            raise _diverged(f"it requests a score where it requested an execution before ({value!r:.80})")
        rollout.score = value
        return value

    async def execute(self, code: str, *, max_output_tokens: int = 256) -> str:
        rollout = self._rollout
        index = self._next_outcome()
        value = rollout.outcomes[index]
        if value is None:
            if self._context.executor is None:
                raise WorkflowFailed("sandbox", "this run's reward service runs no code: it has no sandbox")
            output = await self._context.executor.execute(code)
            value = rollout.outcomes[index] = self._cut(output, max_output_tokens)
            rollout.tool_calls += 1
        if not isinstance(value, str):
            raise _diverged(f"it requests an execution where it requested a score before ({value!r:.80})")
        return value

    async def append_messages(self, messages: Sequence[Mapping[str, str]]) -> None:
        for message in messages:
            if not {"role", "content"} <= set(message):
                raise WorkflowFailed(
                    "misuse", f"{message!r:.200} is not a message: it needs a role and a content"
                )
        previous = self._previous_turn()
        if previous is None or not previous.sampled:
            raise WorkflowFailed(
                "misuse", "messages may only follow a turn of the policy: sample a turn first"
            )
        last = self._rollout.token_ids[self._tokens - 1] if previous.finish_reason == "stop" else None
        try:
            token_ids = self._context.template.continuation(messages, stop_token=last)
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
            self._rollout.add_environment(added)
            turn = self._rollout.turns[-1]
        elif self._rollout.token_ids[self._tokens : self._tokens + turn.tokens] != added:
            raise _diverged("it adds other environment tokens than before")
        self._advance(turn)

    async def _continue_turn(self, limit: int) -> Turn:
        """Sample until the rollout's last turn is complete. Raises Interrupted, and keeps the tokens so far.

        An abort returns partial tokens, and the next request resumes from them. A crashed engine loses the tokens
        that it had not returned. Raises EngineUnavailable after several engines crashed under one turn.
        """
        rollout = self._rollout
        started = time.monotonic()
        crashes = 0
        if self._permit is not None:
            self._permit.acquire()
        try:
            while rollout.turns[-1].finish_reason is None:
                if self._interrupted():
                    raise Interrupted
                left = limit - rollout.turns[-1].tokens
                if left <= 0:
                    rollout.end_turn("length")
                    break
                # The engine matches request ids by prefix, so all ids have the same length.
                rollout.rid = uuid.uuid4().hex
                try:
                    generation = await self._context.engine.generate(
                        self._prompt.token_ids + rollout.token_ids,
                        Sampling(max_new_tokens=left, temperature=self._temperature, seed=rollout.seed),
                        rid=rollout.rid,
                        group_id=rollout.group_id,
                        member=rollout.index,
                    )
                except EngineUnavailable:
                    crashes += 1
                    if crashes >= MAX_ENGINE_LOSSES_PER_REQUEST:
                        raise
                    await asyncio.sleep(0.5)  # until the supervisor notices it too and closes the engine
                    continue
                finally:
                    rollout.rid = ""
                rollout.add_sampled(generation)
            return rollout.turns[-1]
        finally:
            rollout.generate_seconds += time.monotonic() - started
            if self._permit is not None:
                self._permit.release()

    def _cut(self, output: str, limit: int) -> str:
        ids = self._context.template.encode(output)
        if len(ids) <= limit:
            return output
        head, tail = ids[: limit - limit // 2], ids[len(ids) - limit // 2 :]
        decode = self._context.template.decode
        return f"{decode(head)}\n[{len(ids) - limit} tokens cut]\n{decode(tail)}"

    def _recorded(self, *, sampled: bool) -> Turn | None:
        """The recorded turn at the workflow's position; None once the replay is over."""
        if self._turns == len(self._rollout.turns):
            return None
        turn = self._rollout.turns[self._turns]
        if turn.sampled != sampled:
            raise _diverged("policy and environment alternate differently than before")
        return turn

    def _advance(self, turn: Turn) -> None:
        self._turns += 1
        self._tokens += turn.tokens

    def _previous_turn(self) -> Turn | None:
        return self._rollout.turns[self._turns - 1] if self._turns else None

    def _last_turn_text(self) -> str:
        end = self._tokens
        for turn in reversed(self._rollout.turns[: self._turns]):
            if turn.sampled:
                return self._context.template.decode(self._rollout.token_ids[end - turn.tokens : end])
            end -= turn.tokens
        raise WorkflowFailed("misuse", "there is nothing to score: sample a turn first")

    def _next_outcome(self) -> int:
        index = self._outcomes
        self._outcomes += 1
        if index == len(self._rollout.outcomes):
            self._rollout.outcomes.append(None)
        return index

    def _extend_to(self, prompt_ids: list[int]) -> None:
        current = self.context_token_ids
        if prompt_ids[: len(current)] != current:
            raise _diverged("prompt_ids do not begin with the context so far")
        self._append(prompt_ids[len(current) :])

    def _check(self, token_ids: list[int]) -> None:
        vocabulary = self._context.limits.model.vocabulary
        for token in token_ids:
            if type(token) is not int or not 0 <= token < vocabulary:
                raise WorkflowFailed(
                    "misuse", f"{token!r} is not a token id: an integer in [0, {vocabulary})"
                )


def _diverged(what: str) -> WorkflowFailed:
    return WorkflowFailed("diverged", f"the workflow diverged from its recorded trajectory: {what}")
