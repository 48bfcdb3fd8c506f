"""One session: an agent's conversation with the policy, from opening to reward and end."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpu_agents.model_text import run_off_loop
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

SLICE_TOKENS = 32  # per request of a completion that is streamed or has stop strings

State = Literal["open", "ended", "dropped"]


@dataclass(eq=False, kw_only=True)
class Session:
    session_id: str
    rollout_index: int  # in its group, 0-based
    touched_at: float  # end of the last call; an open session that stays idle for too long is dropped
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    tree: ConversationTree = field(default_factory=ConversationTree)
    reward: float | None = None  # from the agent, before scale and bias
    state: State = "open"
    why: str = ""  # reason of state "dropped"
    calls: list[RolloutState] = field(default_factory=list)  # tokens of the running calls
    summary: dict[str, Any] | None = None  # the final status, kept after the group is reported

    def settle(self) -> None:
        """Free tokens and texts after the group is reported; late calls get the summary."""
        self.summary = session_status(self)
        self.tree = ConversationTree()


@dataclass(frozen=True, kw_only=True)
class Completed:
    turn: ConversationTurn
    reply: Reply
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True)
class PolicyClient:
    """Samples for the sessions of one worker: its engine, at the run's temperature."""

    context: RolloutContext
    permits: Permits
    temperature: float

    async def complete(
        self,
        session: Session,
        request: ChatRequest,
        prompt: Prompt,
        rollout: RolloutState,
        *,
        on_text: Callable[[str], Awaitable[None]] | None = None,
    ) -> Completed:
        """One call of the agent, sampled into `rollout` and recorded; `on_text` receives each new piece of text.

        Raises InvalidChatRequest, EngineError, and Interrupted when the session's group is dropped.
        """
        history = history_of(request.messages, request.tools)
        at = session.tree.locate(history)
        new = for_template(request.messages[len(request.messages) - at.new_messages :])
        template = self.context.template
        if at.parent is None:
            added = template.encode(template.render(new, tools=request.tools, plain=True))
            before: list[int] = []
        else:
            before = at.parent.token_ids
            ended = at.parent.sampled.finish_reason == "stop"
            added = template.continuation(new, stop_token=before[-1] if ended else None)
        input_ids = before + added
        sampled = await self._sample(session, request, prompt, rollout, input_ids, on_text)
        text = template.decode(sampled.token_ids)
        has_tools = bool(request.tools)
        reply = await run_off_loop(
            text, lambda: parse_reply(text, sampled.finish_reason, has_tools=has_tools, stops=request.stops)
        )
        turn = session.tree.add(
            at, context_ids=added, sampled=sampled, history=history, reply=canonical(reply.message)
        )
        return Completed(turn=turn, reply=reply, prompt_tokens=len(input_ids))

    async def _sample(
        self,
        session: Session,
        request: ChatRequest,
        prompt: Prompt,
        rollout: RolloutState,
        input_ids: list[int],
        on_text: Callable[[str], Awaitable[None]] | None,
    ) -> Sampled:
        """Sample the completion in one request, or in slices if it is streamed or has stop strings."""
        limits = self.context.limits
        limit = min(request.max_tokens or limits.max_new_tokens, limits.max_new_tokens)
        episode = RolloutEpisode(
            self.context,
            rollout,
            Prompt(row=prompt.row, token_ids=input_ids, text=prompt.text, answer=prompt.answer),
            self.temperature,
            lambda: session.state != "open",
            Permit(self.permits),
        )
        sliced = on_text is not None or bool(request.stops)
        text = _IncrementalText(request.stops)
        began = time.monotonic()
        try:
            count = 0
            finish: Literal["stop", "length"] = "length"
            while count < limit:
                part = min(SLICE_TOKENS, limit - count) if sliced else limit
                turn = await episode.sample(max_new_tokens=part)
                finish = turn.finish_reason
                count = rollout.sampled_tokens
                if sliced:
                    new, stopped = text.grow(self.context.template.decode(rollout.token_ids))
                    if on_text is not None and new:
                        await on_text(new)
                    if stopped:
                        count, finish = self._tokens_to_stop(rollout.token_ids, request.stops), "stop"
                        break
                if finish == "stop" or episode.room_tokens < 1:
                    break
        except OutOfRoom as error:
            raise InvalidChatRequest(
                "messages",
                f"the conversation has {len(input_ids)} tokens and leaves no room for a reply: {error}",
                code="context_length_exceeded",
            ) from error
        return Sampled(
            token_ids=rollout.token_ids[:count],
            logprobs=rollout.logprobs[:count],
            versions=rollout.versions[:count],
            finish_reason=finish,
            interruptions=rollout.interruptions,
            generate_seconds=time.monotonic() - began,
        )

    async def abort(self, rids: Sequence[str]) -> None:
        """Abort these requests in the engine."""
        try:
            await self.context.engine.abort([rid for rid in rids if rid])
        except EngineError:
            return  # the engine has ended, and the requests with it

    def _tokens_to_stop(self, token_ids: list[int], stops: Sequence[str]) -> int:
        """The fewest tokens whose text contains a stop string. Later tokens were never sent to the agent."""
        low, high = 1, len(token_ids)
        while low < high:
            middle = (low + high) // 2
            text = self.context.template.decode(token_ids[:middle])
            if any(stop in text for stop in stops):
                high = middle
            else:
                low = middle + 1
        return low


class _IncrementalText:
    """Growing text, released as far as it is final: not within a partial character or a partial stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held_back = max((len(stop) for stop in stops), default=1) - 1
        self._sent = 0

    def grow(self, text: str) -> tuple[str, bool]:
        """Return the new final text, and whether a stop string was found."""
        cut = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        safe = cut if cut >= 0 else len(text.rstrip("\ufffd")) - self._held_back
        new = text[self._sent : max(safe, self._sent)]
        self._sent = max(safe, self._sent)
        return new, cut >= 0


def session_status(session: Session) -> dict[str, Any]:
    if session.summary is not None:
        return session.summary
    turns = session.tree.turns
    return {
        "id": session.session_id,
        "state": session.state,
        "why": session.why,
        "member": session.rollout_index,
        "reward": session.reward,
        "completions": len(turns),
        "sampled_tokens": session.tree.sampled_tokens,
        "branches": [
            {"turn": turn.number, "because": turn.origin} for turn in turns if turn.origin != "continued"
        ],
    }
