"""A claimed group of sessions: waits until all sessions have ended, then submits the group."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal

from gpu_agents.rollout.sessions.export import Export, NoCommonPrompt, common_prompt, export_branches
from gpu_agents.rollout.sessions.session import PolicyClient, Session
from gpu_agents.rollout.worker.episode import Prompt
from oolong.contracts.rollout import (
    Ack,
    ClaimedGroup,
    FailRequest,
    Group,
    ReleaseRequest,
    SubmitRequest,
)
from oolong.system.rpc import RpcClient, RpcError

log = logging.getLogger(__name__)

STOPPING_RETRY_SECONDS = 5.0  # the controller may be stopping too

Outcome = Literal["complete", "failed", "lost", "release"]


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    export: Export
    timeout_seconds: float
    reward_scale: float
    reward_bias: float


class SessionGroup:
    """One claim. Its sessions cannot migrate to another worker: on release their tokens are lost."""

    def __init__(
        self,
        claimed: ClaimedGroup,
        *,
        worker_id: str,
        config: SessionConfig,
        policy: PolicyClient,
        controller: RpcClient,
        now: float,
    ) -> None:
        self.claimed = claimed
        self.sessions: list[Session] = []
        self.touched_at = now
        self.prompt = Prompt(
            row=claimed.row, token_ids=claimed.prompt_token_ids, text=claimed.prompt, answer=claimed.answer
        )
        self._worker_id = worker_id
        self._config = config
        self.policy = policy
        self._controller = controller
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._failure = ("", "")  # kind, message

    @property
    def claim_id(self) -> str:
        return self.claimed.claim_id

    @property
    def free_rollouts(self) -> int:
        """Rollouts without a session so far."""
        return 0 if self._outcome.done() else self.claimed.group_size - len(self.sessions)

    def open(self, session_id: str, *, now: float) -> Session:
        self.touched_at = now
        session = Session(session_id=session_id, rollout_index=len(self.sessions), touched_at=now)
        self.sessions.append(session)
        return session

    def end(self, session: Session, *, now: float) -> None:
        """End a session that has a reward. The last one completes the group."""
        session.state = "ended"
        self.touched_at = now
        if len(self.sessions) == self.claimed.group_size and all(s.state == "ended" for s in self.sessions):
            self._decide("complete")

    def fail(self, kind: str, message: str) -> None:
        """Drop the whole group for an error of one session. It is never trained with a reward of 0."""
        if not self._outcome.done():
            self._failure = (kind, message)
        self._decide("failed")

    async def interrupt(self, interruption: Literal["lost", "release"]) -> None:
        self._decide(interruption)
        await self.policy.abort([call.rid for session in self.sessions for call in session.calls])

    def overdue(self, *, now: float) -> str:
        """Describe the expired timeout; "" if there is none."""
        limit = self._config.timeout_seconds
        for session in self.sessions:
            if session.state == "open" and not session.calls and now - session.touched_at > limit:
                return f"session {session.session_id} was idle for more than {limit:g} s"
        idle = not any(session.state == "open" for session in self.sessions)
        if self.free_rollouts and idle and now - self.touched_at > limit:
            return f"{self.free_rollouts} rollouts of the group had no agent within {limit:g} s"
        return ""

    async def run(self) -> None:
        """Run until the group is reported: submitted, failed, released, or lost."""
        try:
            outcome = await asyncio.shield(self._outcome)
        finally:
            self._close("the run or its worker has ended")  # no effect unless this task itself was canceled
        match outcome:
            case "complete":
                try:
                    group = self.group()
                except NoCommonPrompt as error:
                    await self._fail("no_common_prompt", str(error))
                else:
                    await self._report(
                        "submit",
                        SubmitRequest(worker_id=self._worker_id, claim_id=self.claim_id, group=group),
                    )
            case "failed":
                await self._fail(*self._failure)
            case "lost":
                await self._fail("claim_lost", "the claim was lost")
            case "release":
                request = ReleaseRequest(
                    worker_id=self._worker_id,
                    claim_id=self.claim_id,
                    members=[],
                    lost_tokens=self._sampled_tokens(),
                )
                await self._report("release", request, retry_seconds=STOPPING_RETRY_SECONDS)

    def group(self) -> Group:
        """Build the group from its ended sessions. Raises NoCommonPrompt."""
        branches = [
            (s, branch) for s in self.sessions for branch in export_branches(s.tree, self._config.export)
        ]
        prompt = common_prompt([branch for _, branch in branches])
        trajectories = []
        for session, branch in branches:
            score = session.reward
            assert score is not None
            reward = self._config.reward_scale * score + self._config.reward_bias
            trajectories.append(
                branch.trajectory(
                    prompt_tokens=len(prompt), rollout=session.rollout_index, reward=reward, score=score
                )
            )
        return Group(
            group_id=self.claimed.group_id,
            row=self.claimed.row,
            prompt_token_ids=prompt,
            prompt=self.claimed.prompt,
            answer=self.claimed.answer,
            trajectories=trajectories,
        )

    def _decide(self, outcome: Outcome) -> None:
        if self._outcome.done():
            return
        self._outcome.set_result(outcome)
        if outcome != "complete":
            reason = {"failed": self._failure[1], "lost": "its claim expired", "release": "its worker stops"}
            self._close(f"its group was dropped: {reason[outcome]}")

    def _close(self, why: str) -> None:
        for session in self.sessions:
            if session.state == "open":
                session.state, session.why = "dropped", why

    def _sampled_tokens(self) -> int:
        return sum(session.tree.sampled_tokens for session in self.sessions)

    async def _fail(self, kind: str, message: str) -> None:
        request = FailRequest(
            worker_id=self._worker_id,
            claim_id=self.claim_id,
            reason="workflow_error",
            message=message,
            generated_tokens=self._sampled_tokens(),
            kind=kind,
        )
        await self._report("fail", request)

    async def _report(
        self,
        method: str,
        request: SubmitRequest | FailRequest | ReleaseRequest,
        *,
        retry_seconds: float | None = None,
    ) -> None:
        try:
            await self._controller.call(method, request, Ack, retry_seconds=retry_seconds)
        except RpcError as error:
            if error.code != "stale_claim":
                raise
            log.info("%s", error)
