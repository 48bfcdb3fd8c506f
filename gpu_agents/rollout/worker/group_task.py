"""One claimed group from prompt to submission: run the workflow of each rollout, then submit the group.

A rollout that is being scored holds no engine permit.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

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
from oolong.system.rpc import RpcClient, RpcError
from oolong.workflow import WorkflowFailed

log = logging.getLogger(__name__)

Interruption = Literal["lost", "release"]
Failure = Literal["reward_error", "workflow_error", "engine_error"]
FAILURES = (
    RewardFailed,
    WorkflowFailed,
    EngineError,
)  # of one group; any other exception is a bug of the worker
HALT_TRIES = 20  # a count, not a time: a stalled engine or process does not cost tokens
ABORT_AGAIN_SECONDS = 0.3
STOPPING_RETRY_SECONDS = 5.0  # the controller may be stopping too


class GroupTask:
    """Runs one claim. Its rollouts acquire their permits at once, and hold them only while they sample."""

    def __init__(
        self,
        claimed: ClaimedGroup,
        *,
        options: WorkerConfig,
        context: RolloutContext,
        controller: RpcClient,
        permits: Permits,
    ) -> None:
        self.claimed = claimed
        self._options = options
        self._context = context
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
        group_id = claimed.group_id
        resumed = {partial.index: RolloutState.resumed(partial, group_id) for partial in claimed.partial}
        self.rollouts = [
            resumed.get(i) or RolloutState(index=i, group_id=group_id) for i in range(claimed.group_size)
        ]
        for rollout in self.rollouts:
            rollout.seed = context.seed_of(group_id, rollout.index)
        self._prefill = PromptPrefill(context.engine, self._prompt.token_ids, self.rollouts)
        self._permits = [Permit(permits) for _ in self.rollouts]
        for permit in self._permits:
            permit.acquire()

    @property
    def claim_id(self) -> str:
        return self.claimed.claim_id

    async def run(self) -> None:
        """Run until the group is reported: submitted, failed, released, or lost."""
        self._tasks = [
            asyncio.create_task(self._run_rollout(rollout, permit))
            for rollout, permit in zip(self.rollouts, self._permits, strict=True)
        ]
        try:
            failure = await self._settle()
        finally:
            for task in self._tasks:
                task.cancel()  # no effect unless this task itself was canceled: otherwise they are done
        if self._interruption == "release":
            await self._release()
        elif self._interruption == "lost":
            # Report the tokens that were sampled under the lost claim, so that the ledger counts them.
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
        """Abort the group's requests; `run` then reports their partial results."""
        if self._interruption is None:
            self._interruption = interruption
        await self._halt()

    async def _settle(self) -> RewardFailed | WorkflowFailed | EngineError | None:
        """Wait for all rollouts. The first failure halts the others and is returned."""
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

    async def _run_rollout(self, rollout: RolloutState, permit: Permit) -> None:
        try:
            if rollout.reward is None:
                await self._prefill.before(rollout)
                value = await self._context.run(
                    rollout,
                    self._prompt,
                    temperature=self._options.temperature,
                    interrupted=lambda: self._failed or self._interruption is not None,
                    permit=permit,
                )
                rollout.reward = self._options.reward_scale * value + self._options.reward_bias
        except Interrupted:
            log.debug("rollout %d of %s was halted", rollout.index, self.claimed.group_id)
        finally:
            permit.release()

    async def _halt(self) -> None:
        """Abort until no rollout runs. One that does not end in time is canceled and keeps its tokens."""
        pending = {task for task in self._tasks if not task.done()}
        for _ in range(HALT_TRIES):
            if not pending:
                return
            try:
                await self._context.engine.abort([rollout.rid for rollout in self.rollouts if rollout.rid])
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
            trajectories=[rollout.trajectory() for rollout in self.rollouts],
        )
        worker_id = self._options.worker_id
        await self._report("submit", SubmitRequest(worker_id=worker_id, claim_id=self.claim_id, group=group))

    async def _release(self) -> None:
        migratable = self._context.workflow.migratable
        partial = [m for m in self.rollouts if m.sampled_tokens and (migratable or m.reward is not None)]
        request = ReleaseRequest(
            worker_id=self._options.worker_id,
            claim_id=self.claim_id,
            members=[rollout.partial() for rollout in partial],
            lost_tokens=sum(m.sampled_tokens for m in self.rollouts) - sum(m.sampled_tokens for m in partial),
        )
        await self._report("release", request)

    async def _fail(self, reason: Failure, message: str, *, kind: str = "") -> None:
        request = FailRequest(
            worker_id=self._options.worker_id,
            claim_id=self.claim_id,
            reason=reason,
            message=message,
            generated_tokens=sum(rollout.sampled_tokens for rollout in self.rollouts),
            kind=kind,
        )
        await self._report("fail", request)

    async def _report(self, method: str, request: SubmitRequest | ReleaseRequest | FailRequest) -> None:
        retry_seconds = STOPPING_RETRY_SECONDS if self._interruption == "release" else None
        try:
            await self._controller.call(method, request, Ack, retry_seconds=retry_seconds)
        except RpcError as error:
            if error.code != "stale_claim":
                raise
            log.info("%s", error)


def _reason(error: Exception) -> Failure:
    if isinstance(error, RewardFailed):
        return "reward_error"
    return "engine_error" if isinstance(error, EngineUnavailable) else "workflow_error"
