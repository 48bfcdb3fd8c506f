"""Opens and closes sessions. Each session is one rollout of a group that the admission gate admitted."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gpu_agents.rollout.sessions.openai_chat import ChatRequest
from gpu_agents.rollout.sessions.session import Completed, Session
from gpu_agents.rollout.sessions.session_group import SessionGroup
from gpu_agents.rollout.worker.rollout_state import RolloutState
from oolong.contracts.attempt import CanonicalRow
from oolong.contracts.rollout import Refusal

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
MAX_CONCURRENT_CALLS = 16  # per session: more would crowd out the engine's other groups
REMEMBERED_SESSIONS = 2000  # ended sessions, so that a late call gets the reason


class NoCapacity(Exception):
    """The admission gate is closed: no session can start now. `refusal` is the gate's reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal: Refusal = refusal


class SessionNotFound(Exception):
    """No session has this id."""


class SessionConflict(Exception):
    """The session's state does not allow the operation. The message says what is missing."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class OpenedSession:
    session: Session
    group: SessionGroup
    row: CanonicalRow


class SessionManager:
    """`claim` claims one group from the controller: a running group, or the gate's refusal."""

    def __init__(self, *, index: int, rows: Mapping[int, CanonicalRow]) -> None:
        self.counts: Counter[str] = Counter()
        self._index = index  # of the worker's job: prefix of session ids, which routes calls
        self._rows = rows
        self._claim: Callable[[], Awaitable[SessionGroup | Refusal]] | None = None
        self._groups: list[SessionGroup] = []  # running
        self._sessions: dict[str, tuple[Session, SessionGroup]] = {}
        self._opening = asyncio.Lock()

    def serve(self, claim: Callable[[], Awaitable[SessionGroup | Refusal]]) -> None:
        """Start claiming groups through `claim`."""
        self._claim = claim

    async def run(self) -> None:
        """Drop abandoned groups, forever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = time.monotonic()
            for group in list(self._groups):
                if overdue := group.overdue(now=now):
                    log.warning("dropping group %s: %s", group.claimed.group_id, overdue)
                    self.counts["timeouts"] += 1
                    group.fail("session_timeout", overdue)

    async def open(self) -> OpenedSession:
        """Open a session in a group with a free rollout, else in a newly claimed group. Raises NoCapacity."""
        async with self._opening:  # otherwise two agents could claim two groups where one suffices
            group = next((group for group in self._groups if group.free_rollouts), None)
            if group is None:
                # If the agent disconnects now, the next agent gets the claimed group.
                group = await asyncio.shield(asyncio.create_task(self._claim_group()))
            session = group.open(f"{self._index}-{secrets.token_hex(8)}", now=time.monotonic())
        self.counts["opened"] += 1
        self._sessions[session.session_id] = (session, group)
        self._prune_ended()
        return OpenedSession(session, group, self._rows[group.claimed.row])

    def find(self, session_id: str) -> tuple[Session, SessionGroup]:
        """Raises SessionNotFound."""
        if session_id not in self._sessions:
            raise SessionNotFound(
                f"there is no session {session_id!r}: it never existed, or its worker has restarted since"
            )
        return self._sessions[session_id]

    async def complete(
        self,
        session_id: str,
        request: ChatRequest,
        *,
        on_text: Callable[[str], Awaitable[None]] | None = None,
    ) -> Completed:
        session, group = self._find_open(session_id)
        if len(session.calls) >= MAX_CONCURRENT_CALLS:
            raise SessionConflict(
                "too_many_calls",
                f"{len(session.calls)} calls of the session are running; wait for one to finish",
            )
        number = len(session.tree.turns) + len(session.calls)
        group_id = group.claimed.group_id
        seed = group.policy.context.seed_of(group_id, session.rollout_index, number)
        rollout = RolloutState(index=session.rollout_index, group_id=group_id, seed=seed)
        session.calls.append(rollout)
        call = asyncio.create_task(
            group.policy.complete(session, request, group.prompt, rollout, on_text=on_text)
        )
        try:
            completed = await asyncio.shield(call)
        except asyncio.CancelledError:
            # The agent disconnected. Cancel the call first, or it would resume after the abort.
            rid = rollout.rid
            call.cancel()
            await group.policy.abort([rid])
            raise
        finally:
            session.calls.remove(rollout)
            session.touched_at = time.monotonic()
        self.counts["completions"] += 1
        self.counts["branches"] += completed.turn.origin in ("forked", "history_rewritten")
        return completed

    def set_reward(self, session_id: str, reward: float) -> Session:
        session, _ = self._find_open(session_id)
        session.reward = reward
        session.touched_at = time.monotonic()
        return session

    def end(self, session_id: str) -> Session:
        session, group = self._find_open(session_id)
        if session.calls:
            raise SessionConflict(
                "call_running", f"{len(session.calls)} calls of the session are still running"
            )
        if session.reward is None:
            raise SessionConflict("no_reward", "set a reward first, or end the session with discard")
        if not session.tree.turns:
            raise SessionConflict(
                "nothing_sampled",
                "the policy has sampled nothing, so there is nothing to train on; end the session with discard",
            )
        group.end(session, now=time.monotonic())
        return session

    def discard(self, session_id: str) -> Session:
        """The agent failed: drop its group as an error, never train it with a reward of 0. Idempotent."""
        session, group = self.find(session_id)
        if session.state == "dropped":
            return session
        self._find_open(session_id)
        group.fail("session_discarded", f"the agent of session {session_id} discarded it")
        return session

    def metrics(self) -> dict[str, float]:
        sessions = [session for group in self._groups for session in group.sessions]
        counts = self.counts
        return {
            "session/open": float(sum(session.state == "open" for session in sessions)),
            "session/opened": float(counts["opened"]),
            "session/completions": float(counts["completions"]),
            "session/branches": float(counts["branches"]),
            "session/timeouts": float(counts["timeouts"]),
            "session/refused_staleness": float(counts["refused_staleness"]),
            "session/refused_concurrency": float(counts["refused_concurrency"]),
            "session/refused_other": float(counts["refused_other"]),
            "tunnel/requests": float(counts["relay_requests"]),
            "tunnel/bytes": float(counts["relay_bytes"]),
        }

    async def _claim_group(self) -> SessionGroup:
        refusal: Refusal = "paused"
        if self._claim is not None:
            group = await self._claim()
            if isinstance(group, SessionGroup):
                self._groups.append(group)
                return group
            refusal = group
        self.counts[f"refused_{refusal}" if refusal in ("staleness", "concurrency") else "refused_other"] += 1
        raise NoCapacity(refusal)

    def group_reported(self, group: SessionGroup) -> None:
        """Forget a group that was submitted, failed or released."""
        if group in self._groups:
            self._groups.remove(group)
        for session in group.sessions:
            session.settle()

    def _find_open(self, session_id: str) -> tuple[Session, SessionGroup]:
        session, group = self.find(session_id)
        if session.state == "dropped":
            raise SessionConflict("session_dropped", f"the session was dropped: {session.why}")
        if session.state == "ended":
            raise SessionConflict("session_ended", "the session has ended")
        return session, group

    def _prune_ended(self) -> None:
        ended = [identity for identity, (session, _) in self._sessions.items() if session.state != "open"]
        for identity in ended[: max(0, len(ended) - REMEMBERED_SESSIONS)]:
            del self._sessions[identity]
