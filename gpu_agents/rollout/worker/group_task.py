"""One claimed group from prompt to submit: run the workflow of each member, hand the group in.

Scoring holds no place in the engine: a member that is being scored has left it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from gpu_agents.channel import CallRefused, Peer
from gpu_agents.rollout.engines.errors import EngineError, EngineUnavailable
from gpu_agents.rollout.worker.config import WorkerConfig
from gpu_agents.rollout.worker.episode import Interrupted, Prompt, RolloutContext
from gpu_agents.rollout.worker.permits import Permit, Permits
from gpu_agents.rollout.worker.prompt_prefill import PromptPrefill
from gpu_agents.rollout.worker.rollout_state import RolloutState
from gpu_agents.rollout.worker.scoring import RewardFailed
from oolong.contracts.rollout import (
    Ack,
    ClaimedGroup,
    FailRequest,
    Group,
    ReleaseRequest,
    SubmitRequest,
)
from oolong.workflow import WorkflowFailed

log = logging.getLogger(__name__)

Interruption = Literal["lost", "give_back"]
Failure = Literal["reward_error", "workflow_error", "engine_error"]
FAILURES = (RewardFailed, WorkflowFailed, EngineError)  # of one group; anything else is a fault of the worker
HALT_TRIES = 20  # not a time: while the engine or this process stands still, tokens are not given up
ABORT_AGAIN_SECONDS = 0.3
STOPPING_PATIENCE_SECONDS = 5.0  # the controller may be stopping too


class GroupTask:
    """Runs one claim. Its members take their places in the engine at once, and leave them turn by turn."""

    def __init__(
        self,
        claimed: ClaimedGroup,
        *,
        options: WorkerConfig,
        stage: RolloutContext,
        controller: Peer,
        places: Permits,
    ) -> None:
        self.claimed = claimed
        self._options = options
        self._stage = stage
        self._controller = controller
        self._interruption: Interruption | None = None
        self._failed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._prompt = Prompt(
            row=claimed.row,
            token_ids=claimed.prompt_token_ids,
            text=claimed.prompt,
            answer=claimed.answer,
        )
        resumed = {partial.index: RolloutState.resumed(partial) for partial in claimed.partial}
        self.members = [resumed.get(i) or RolloutState(index=i) for i in range(claimed.group_size)]
        for member in self.members:
            member.seed = stage.seed_of(claimed.group_id, member.index)
        self._prefill = PromptPrefill(stage.slot, self._prompt.token_ids, self.members)
        self._places = [Permit(places) for _ in self.members]
        for place in self._places:
            place.take()

    @property
    def claim_id(self) -> str:
        return self.claimed.claim_id

    async def run(self) -> None:
        """Until the group is reported: submitted, failed, given back, or lost."""
        self._tasks = [
            asyncio.create_task(self._run_member(member, place))
            for member, place in zip(self.members, self._places, strict=True)
        ]
        try:
            failure = await self._settle()
        finally:
            for task in self._tasks:
                task.cancel()  # only when this task was cancelled itself: else they are done
        if self._interruption == "give_back":
            await self._give_back()
        elif self._interruption == "lost":
            # The claim is gone; say how many tokens were made under it, so that they are accounted for.
            await self._fail("workflow_error", "the claim was lost")
        elif failure is not None:
            await self._fail(
                _reason(failure),
                str(failure),
                kind=failure.kind if isinstance(failure, WorkflowFailed) else "",
            )
        else:
            await self._submit()

    async def interrupt(self, interruption: Interruption) -> None:
        """End it early: abort its requests; `run` then reports what came of them."""
        if self._interruption is None:
            self._interruption = interruption
        await self._halt()

    async def _settle(self) -> RewardFailed | WorkflowFailed | EngineError | None:
        """Wait for every member; the first failure stops the others and is returned."""
        _done, pending = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            self._failed = True
            await self._halt()
        errors = [task.exception() for task in self._tasks if not task.cancelled()]
        failures = [error for error in errors if isinstance(error, FAILURES)]
        for error in errors:
            if error is not None and error not in failures:
                raise error
        return failures[0] if failures else None

    async def _run_member(self, member: RolloutState, place: Permit) -> None:
        try:
            if member.reward is None:
                await self._prefill.before(member)
                worth = await self._stage.play(
                    member,
                    self._prompt,
                    temperature=self._options.temperature,
                    interrupted=lambda: self._failed or self._interruption is not None,
                    place=place,
                )
                member.reward = self._options.reward_scale * worth + self._options.reward_bias
        except Interrupted:
            log.debug("member %d of %s was halted", member.index, self.claimed.group_id)
        finally:
            place.leave()

    async def _halt(self) -> None:
        """Abort what runs until nothing does; what does not end in time is cancelled and keeps its tokens."""
        pending = {task for task in self._tasks if not task.done()}
        for _ in range(HALT_TRIES):
            if not pending:
                return
            try:
                await self._stage.slot.abort([member.rid for member in self.members if member.rid])
            except EngineError as error:
                log.info("nothing to abort: %s", error)
                break
            _done, pending = await asyncio.wait(pending, timeout=ABORT_AGAIN_SECONDS)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)

    async def _submit(self) -> None:
        group = Group(
            group_id=self.claimed.group_id,
            row=self.claimed.row,
            prompt_token_ids=self.claimed.prompt_token_ids,
            prompt=self.claimed.prompt,
            answer=self.claimed.answer,
            trajectories=[member.trajectory() for member in self.members],
        )
        worker_id = self._options.worker_id
        await self._report("submit", SubmitRequest(worker_id=worker_id, claim_id=self.claim_id, group=group))

    async def _give_back(self) -> None:
        migratable = self._stage.workflow.migratable
        kept = [m for m in self.members if m.sampled_tokens and (migratable or m.reward is not None)]
        request = ReleaseRequest(
            worker_id=self._options.worker_id,
            claim_id=self.claim_id,
            members=[member.partial() for member in kept],
            lost_tokens=sum(m.sampled_tokens for m in self.members) - sum(m.sampled_tokens for m in kept),
        )
        await self._report("release", request)

    async def _fail(self, reason: Failure, message: str, *, kind: str = "") -> None:
        request = FailRequest(
            worker_id=self._options.worker_id,
            claim_id=self.claim_id,
            reason=reason,
            message=message,
            generated_tokens=sum(member.sampled_tokens for member in self.members),
            kind=kind,
        )
        await self._report("fail", request)

    async def _report(self, verb: str, request: SubmitRequest | ReleaseRequest | FailRequest) -> None:
        patience = STOPPING_PATIENCE_SECONDS if self._interruption == "give_back" else None
        try:
            await self._controller.call(verb, request, Ack, patience_seconds=patience)
        except CallRefused as error:
            if error.code != "stale_claim":
                raise
            log.info("%s", error)


def _reason(error: Exception) -> Failure:
    if isinstance(error, RewardFailed):
        return "reward_error"
    return "engine_error" if isinstance(error, EngineUnavailable) else "workflow_error"
