"""One session: an agent's conversation with the policy, from its opening to its reward and end."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpu_agents.model_text import beside_the_loop
from gpu_agents.rollout.engines.errors import EngineError
from gpu_agents.rollout.sessions.conversation_tree import (
    ConversationTree,
    ConversationTurn,
    Sampled,
    canonical,
    history_of,
)
from gpu_agents.rollout.sessions.openai_chat import (
    ChatRequest,
    InvalidChatRequest,
    Reply,
    for_template,
    parse_reply,
)
from gpu_agents.rollout.worker.episode import Prompt, RolloutContext, RolloutEpisode
from gpu_agents.rollout.worker.permits import Permit, Permits
from gpu_agents.rollout.worker.rollout_state import RolloutState
from oolong.workflow import OutOfRoom

SLICE_TOKENS = 32  # of a completion that is watched while it is made: streamed, or with stop strings

State = Literal["open", "ended", "dropped"]


@dataclass(eq=False, kw_only=True)
class Session:
    session_id: str
    member: int  # of its group, 0-based
    opened_at: float
    touched_at: float  # of the last call's end; an open session that is left alone for too long is dropped
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    capture: ConversationTree = field(default_factory=ConversationTree)
    reward: float | None = None  # as the agent gave it, before scale and bias
    state: State = "open"
    why: str = ""  # it was dropped
    calls: list[RolloutState] = field(default_factory=list)  # what the calls that run now have sampled so far
    summary: dict[str, Any] | None = None  # what is left of it once its group was reported

    def settle(self) -> None:
        """Its group was reported: late calls are answered from a summary, and its tokens and texts are let go."""
        self.summary = session_status(self)
        self.capture = ConversationTree()


@dataclass(frozen=True, kw_only=True)
class Completed:
    turn: ConversationTurn
    reply: Reply
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True)
class PolicyClient:
    """What sessions of one worker talk to: its engine, at the run's temperature."""

    stage: RolloutContext
    places: Permits
    temperature: float

    async def complete(
        self,
        session: Session,
        request: ChatRequest,
        prompt: Prompt,
        member: RolloutState,
        *,
        said: Callable[[str], Awaitable[None]] | None = None,
    ) -> Completed:
        """One call of the agent, sampled into `member` and captured; `said` is told each new stretch of text.

        Raises InvalidChatRequest, EngineError, and Interrupted when the session's group was taken away meanwhile.
        """
        history = history_of(request.messages, request.tools)
        place = session.capture.place(history)
        new = for_template(request.messages[len(request.messages) - place.new_messages :])
        template = self.stage.template
        if place.parent is None:
            added = template.encode(template.render(new, tools=request.tools, plain=True))
            before: list[int] = []
        else:
            before = place.parent.token_ids
            ended = place.parent.sampled.finish_reason == "stop"
            added = template.continuation(new, stop_token=before[-1] if ended else None)
        context = before + added
        sampled = await self._sample(session, request, prompt, member, context, said)
        text = template.decode(sampled.token_ids)
        has_tools = bool(request.tools)
        reply = await beside_the_loop(
            text, lambda: parse_reply(text, sampled.finish_reason, has_tools=has_tools, stops=request.stops)
        )
        turn = session.capture.add(
            place, context_ids=added, sampled=sampled, history=history, reply=canonical(reply.message)
        )
        return Completed(turn=turn, reply=reply, prompt_tokens=len(context))

    async def _sample(
        self,
        session: Session,
        request: ChatRequest,
        prompt: Prompt,
        member: RolloutState,
        context: list[int],
        said: Callable[[str], Awaitable[None]] | None,
    ) -> Sampled:
        """Sample whole, or slice by slice where somebody watches: each goes on from the tokens of the one before."""
        limits = self.stage.limits
        most = min(request.max_tokens or limits.max_new_tokens, limits.max_new_tokens)
        episode = RolloutEpisode(
            self.stage,
            member,
            Prompt(row=prompt.row, token_ids=context, text=prompt.text, answer=prompt.answer),
            self.temperature,
            lambda: session.state != "open",
            Permit(self.places),
        )
        watched = said is not None or bool(request.stops)
        text = _IncrementalText(request.stops)
        began = time.monotonic()
        try:
            kept = 0
            finish: Literal["stop", "length"] = "length"
            while kept < most:
                part = min(SLICE_TOKENS, most - kept) if watched else most
                turn = await episode.sample(max_new_tokens=part)
                finish = turn.finish_reason
                kept = member.sampled_tokens
                if watched:
                    new, stopped = text.grow(self.stage.template.decode(member.token_ids))
                    if said is not None and new:
                        await said(new)
                    if stopped:
                        kept, finish = self._tokens_to_stop(member.token_ids, request.stops), "stop"
                        break
                if finish == "stop" or episode.room_tokens < 1:
                    break
        except OutOfRoom as error:
            raise InvalidChatRequest(
                "messages",
                f"the conversation has {len(context)} tokens and leaves no room for an answer: {error}",
                code="context_length_exceeded",
            ) from error
        return Sampled(
            token_ids=member.token_ids[:kept],
            logprobs=member.logprobs[:kept],
            versions=member.versions[:kept],
            finish_reason=finish,
            interruptions=member.interruptions,
            generate_seconds=time.monotonic() - began,
        )

    async def abort(self, rids: Sequence[str]) -> None:
        """Take these requests back from the engine."""
        try:
            await self.stage.slot.abort([rid for rid in rids if rid])
        except EngineError:
            return  # an engine that is gone holds nothing any more

    def _tokens_to_stop(self, token_ids: list[int], stops: Sequence[str]) -> int:
        """The fewest tokens whose text has a stop string: what was sampled beyond them nobody has seen."""
        low, high = 1, len(token_ids)
        while low < high:
            middle = (low + high) // 2
            text = self.stage.template.decode(token_ids[:middle])
            if any(stop in text for stop in stops):
                high = middle
            else:
                low = middle + 1
        return low


class _IncrementalText:
    """Text as it grows, given out up to where it can no longer change: before half characters and half stops."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held_back = max((len(stop) for stop in stops), default=1) - 1
        self._given = 0

    def grow(self, text: str) -> tuple[str, bool]:
        """What is new and final of the text so far, and whether a stop string was met."""
        cut = min((place for stop in self._stops if (place := text.find(stop)) >= 0), default=-1)
        safe = cut if cut >= 0 else len(text.rstrip("\ufffd")) - self._held_back
        new = text[self._given : max(safe, self._given)]
        self._given = max(safe, self._given)
        return new, cut >= 0


def session_status(session: Session) -> dict[str, Any]:
    if session.summary is not None:
        return session.summary
    turns = session.capture.turns
    return {
        "id": session.session_id,
        "state": session.state,
        "why": session.why,
        "member": session.member,
        "reward": session.reward,
        "completions": len(turns),
        "sampled_tokens": session.capture.sampled_tokens,
        "branches": [
            {"turn": turn.number, "because": turn.beginning}
            for turn in turns
            if turn.beginning != "continued"
        ],
    }
