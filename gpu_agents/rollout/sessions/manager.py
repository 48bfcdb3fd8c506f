"""Where sessions are opened and closed: each is a member of a group that was let in by the admission gate."""

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

LOOK_SECONDS = 0.5
MOST_CALLS = 16  # of one session at a time: more would crowd out the other groups of the engine
REMEMBERED_SESSIONS = 2000  # that are over, so that a late call learns why


class NoCapacity(Exception):
    """The gate is closed: no session can begin now. `refusal` is the gate's own reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal: Refusal = refusal


class SessionNotFound(Exception):
    """There is no session of this id here."""


class SessionConflict(Exception):
    """The session's state does not allow it; the message says what is missing."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class OpenedSession:
    session: Session
    group: SessionGroup
    row: CanonicalRow


class SessionManager:
    """`claim` asks the controller for one group: a group that now runs, or the gate's refusal."""

    def __init__(self, *, index: int, rows: Mapping[int, CanonicalRow]) -> None:
        self.counts: Counter[str] = Counter()
        self._index = index  # of the worker's job: session ids begin with it, so that calls find their way
        self._rows = rows
        self._claim: Callable[[], Awaitable[SessionGroup | Refusal]] | None = None
        self._groups: list[SessionGroup] = []  # those that run
        self._sessions: dict[str, tuple[Session, SessionGroup]] = {}
        self._opening = asyncio.Lock()

    def serve(self, claim: Callable[[], Awaitable[SessionGroup | Refusal]]) -> None:
        """From now on groups can be claimed."""
        self._claim = claim

    async def run(self) -> None:
        """Drop what agents have left alone; for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            for group in list(self._groups):
                if overdue := group.overdue(now=now):
                    log.warning("group %s is dropped: %s", group.claimed.group_id, overdue)
                    self.counts["timeouts"] += 1
                    group.fail("session_timeout", overdue)

    async def open(self) -> OpenedSession:
        """A member of a group that has one free, else of a newly claimed one. Raises NoCapacity."""
        async with self._opening:  # else two agents would claim two groups where one has room for both
            group = next((one for one in self._groups if one.free_members), None)
            if group is None:
                # An agent that hangs up now leaves a claimed group, which the next one gets.
                group = await asyncio.shield(asyncio.create_task(self._claim_group()))
            session = group.open(f"{self._index}-{secrets.token_hex(8)}", now=time.monotonic())
        self.counts["opened"] += 1
        self._sessions[session.session_id] = (session, group)
        self._forget_oldest()
        return OpenedSession(session, group, self._rows[group.claimed.row])

    def find(self, session_id: str) -> tuple[Session, SessionGroup]:
        """Raises SessionNotFound."""
        if session_id not in self._sessions:
            raise SessionNotFound(
                f"there is no session {session_id!r} here: it never was, or its worker has been started anew since"
            )
        return self._sessions[session_id]

    async def complete(
        self,
        session_id: str,
        request: ChatRequest,
        *,
        said: Callable[[str], Awaitable[None]] | None = None,
    ) -> Completed:
        session, group = self._open_one(session_id)
        if len(session.calls) >= MOST_CALLS:
            raise SessionConflict(
                "too_many_calls", f"{len(session.calls)} calls of the session are running; wait for one"
            )
        number = len(session.capture.turns) + len(session.calls)
        seed = group.policy.stage.seed_of(group.claimed.group_id, session.member, number)
        member = RolloutState(index=session.member, seed=seed)
        session.calls.append(member)
        call = asyncio.create_task(group.policy.complete(session, request, group.prompt, member, said=said))
        try:
            completed = await asyncio.shield(call)
        except asyncio.CancelledError:
            # The agent hung up: nobody wants the rest. Cancelled first, or it would go on after the abort.
            rid = member.rid
            call.cancel()
            await group.policy.abort([rid])
            raise
        finally:
            session.calls.remove(member)
            session.touched_at = time.monotonic()
        self.counts["completions"] += 1
        self.counts["branches"] += completed.turn.beginning in ("forked", "history_rewritten")
        return completed

    def set_reward(self, session_id: str, reward: float) -> Session:
        session, _ = self._open_one(session_id)
        session.reward = reward
        session.touched_at = time.monotonic()
        return session

    def end(self, session_id: str) -> Session:
        session, group = self._open_one(session_id)
        if session.calls:
            raise SessionConflict(
                "call_running", f"{len(session.calls)} calls of the session are still running"
            )
        if session.reward is None:
            raise SessionConflict(
                "no_reward", "set a reward first; an agent that has none to give ends with discard"
            )
        if not session.capture.turns:
            raise SessionConflict(
                "nothing_sampled", "the policy has not said anything: there is nothing to train on; discard"
            )
        group.end(session, now=time.monotonic())
        return session

    def discard(self, session_id: str) -> Session:
        """The agent failed: its group is dropped{error}, never trained with a reward of 0. Done twice, done."""
        session, group = self.find(session_id)
        if session.state == "dropped":
            return session
        self._open_one(session_id)
        group.fail("session_discarded", f"the agent of session {session_id} gave it up")
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

    # --- inside -------------------------------------------------------------------------------------------

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

    def over(self, group: SessionGroup) -> None:
        """The group was reported."""
        if group in self._groups:
            self._groups.remove(group)
        for session in group.sessions:
            session.settle()

    def _open_one(self, session_id: str) -> tuple[Session, SessionGroup]:
        session, group = self.find(session_id)
        if session.state == "dropped":
            raise SessionConflict("session_dropped", f"the session was dropped: {session.why}")
        if session.state == "ended":
            raise SessionConflict("session_ended", "the session has ended")
        return session, group

    def _forget_oldest(self) -> None:
        over = [identity for identity, (session, _) in self._sessions.items() if session.state != "open"]
        for identity in over[: max(0, len(over) - REMEMBERED_SESSIONS)]:
            del self._sessions[identity]
