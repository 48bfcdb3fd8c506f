"""Serves the controller over RPC: long polls, the tick loop, and the deletion of old weights."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from gpu_agents.rollout.controller import snapshot as snapshots
from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.group_store import StaleClaim
from gpu_agents.rollout.controller.stall_aware_clock import StallAwareClock
from gpu_agents.rollout.controller.telemetry import ControllerTelemetry, recorded_trajectories
from gpu_agents.rollout.controller.versions import VersionConflict
from oolong.contracts import rollout as wire
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.runtime_overrides import LiveFile
from oolong.system.rpc import RpcError, RpcServer

log = logging.getLogger(__name__)

Value = TypeVar("Value")

MAX_POLL_SECONDS = 30.0
TICK_SECONDS = 1.0
ALL_STALE_SECONDS = 120.0


class ControllerServer:
    """Serves one Controller. All state changes happen on the event loop, so each call is atomic."""

    def __init__(
        self,
        controller: Controller,
        telemetry: ControllerTelemetry,
        *,
        token: str,
        began_at: float,
        live: LiveFile,
        clock: StallAwareClock | None = None,
    ) -> None:
        self.controller = controller
        self._state, self._workers, self._trainer = controller.state, controller.workers, controller.trainer
        self._now = clock or StallAwareClock()  # for timeouts; a poll waits by the loop's own time
        self._telemetry = telemetry
        self._live = live
        self._began_at = began_at  # unix seconds
        self._publish_overrides(controller.apply_overrides(live.settings))
        self._changed = asyncio.Event()
        self.rpc = RpcServer(token)
        for name, request, handler in (
            ("claim", wire.ClaimRequest, self._claim),
            ("renew", wire.RenewRequest, self._renew),
            ("submit", wire.SubmitRequest, self._submit),
            ("fail", wire.FailRequest, self._fail),
            ("release", wire.ReleaseRequest, self._release),
            ("deregister", wire.DeregisterRequest, self._deregister),
            ("load_claim", wire.LoadClaimRequest, self._load_claim),
            ("ack", wire.AckRequest, self._ack),
            ("evaluator", wire.EvaluatorRequest, self._evaluator),
            ("evaluation_result", wire.EvaluationResult, self._evaluation_result),
            ("evaluation_failed", wire.EvaluationFailure, self._evaluation_failed),
            ("attempt_clock", wire.AttemptClockRequest, self._attempt_clock),
            ("state", wire.StateRequest, self._get_state),
            ("publish_version", wire.PublishVersionRequest, self._announce),
            ("take", wire.TakeRequest, self._take),
            ("snapshot", wire.SnapshotRequest, self._snapshot),
            ("probes", wire.ProbesRequest, self._probes),
            ("stale_engine", wire.StaleEngineRequest, self._stale_engine),
            ("end", wire.EndRequest, self._end),
        ):
            self.rpc.method(name, request, handler)  # type: ignore[arg-type]

    async def run_ticks(self) -> None:
        """Apply timeouts and runtime overrides, and publish telemetry, once a second; never returns."""
        while True:
            self._publish_notes(self.controller.timers.tick(now=self._now()))
            if self._live.poll():
                self._apply_overrides()
            await self._delete_old_weights()
            self._notify()
            self._telemetry.publish(self._state, now=time.time())
            await self._now.sleep(TICK_SECONDS)

    def flush_notes(self) -> None:
        """Publish the notes since the last tick; call it before the telemetry is closed."""
        self._publish_notes(self._state.take_notes())

    def _publish_notes(self, notes: list[str]) -> None:
        for note in notes:
            log.warning(note)
            self._telemetry.note("rollout", note)

    def _apply_overrides(self) -> None:
        settings, before = self._live.settings, self._live.before
        self._publish_overrides(self.controller.apply_overrides(settings))
        if settings.evaluation_requests > before.evaluation_requests:
            self._publish_overrides([self.controller.evaluate_now(settings.evaluation_requests)])

    def _publish_overrides(self, notes: list[str]) -> None:
        for note in notes:
            log.info(note)
            self._telemetry.note("live_change", note)

    async def wait_until_ended(self) -> None:
        while not self._state.ended:
            await self._wait_for_change(TICK_SECONDS)

    async def wait_until_end_acked(self, *, seconds: float) -> None:
        """Wait until every live worker knows that the run has ended, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._state.end_acked_by_all(now=self._now()):
                return
            await self._wait_for_change(min(left, TICK_SECONDS))

    async def wait_until_unrecoverable(self) -> tuple[EndReason, str]:
        """Wait until the run cannot continue, and return the end reason and its message.

        That is: too many groups in a row failed in the reward service, failed in their workflow or were filtered, or
        every engine has been STALE for too long.
        """
        state, counters = self._state, self._state.counters
        limit = max(16, 2 * state.config.gate.groups_per_step)
        while True:
            if counters.consecutive_reward_errors >= limit:
                return (
                    EndReason.REWARD_ERRORS,
                    f"{limit} groups in a row were not scored; last: {counters.last_error}",
                )
            config, in_a_row = state.config.filter, state.filtering.in_a_row
            if in_a_row >= config.max_consecutive:
                return (
                    EndReason.ALL_FILTERED,
                    f"{in_a_row} groups in a row were filtered by rollout.filter.kind={config.kind} and none was kept",
                )
            if counters.consecutive_workflow_errors >= limit:
                return (
                    EndReason.WORKFLOW_ERRORS,
                    f"the workflow of {limit} groups in a row failed; last: {counters.last_error}",
                )
            if self.controller.timers.all_stale_seconds(now=self._now()) > ALL_STALE_SECONDS:
                return (
                    EndReason.MODEL_INVALID,
                    f"every engine has been STALE for {ALL_STALE_SECONDS:g} s: the weights do not load, or engine and "
                    "trainer compute different log-probabilities; see the run's events",
                )
            await self._wait_for_change(TICK_SECONDS)

    # --- workers ------------------------------------------------------------------------------------------

    async def _claim(self, request: wire.ClaimRequest) -> wire.ClaimReply:
        def attempt() -> wire.ClaimReply | None:
            reply = self._workers.claim(request, now=self._now())
            empty = not reply.groups and reply.evaluation is None and not reply.ended
            return None if empty and reply.refusal != "engine_behind" else reply

        reply = await self._poll(attempt, request.wait_seconds)
        if reply is None:
            reply = self._workers.claim(request, now=self._now())
        if reply.groups or reply.ended:
            self._notify()
        return reply

    async def _renew(self, request: wire.RenewRequest) -> wire.RenewReply:
        reply = self._workers.renew(request, now=self._now())
        if reply.ended:
            self._notify()
        return reply

    async def _submit(self, request: wire.SubmitRequest) -> wire.Ack:
        try:
            self._workers.submit(request, now=self._now())
        except StaleClaim as error:
            raise RpcError(409, "stale_claim", str(error)) from error
        except ValueError as error:
            raise RpcError(400, "malformed", str(error)) from error
        self._notify()
        return wire.Ack()

    async def _fail(self, request: wire.FailRequest) -> wire.Ack:
        log.warning("group of claim %s failed: %s: %s", request.claim_id, request.reason, request.message)
        try:
            self._workers.fail(request, now=self._now())
        except StaleClaim as error:
            raise RpcError(409, "stale_claim", str(error)) from error
        self._notify()
        return wire.Ack()

    async def _release(self, request: wire.ReleaseRequest) -> wire.Ack:
        try:
            self._workers.release(request, now=self._now())
        except StaleClaim as error:
            raise RpcError(409, "stale_claim", str(error)) from error
        self._notify()
        return wire.Ack()

    async def _attempt_clock(self, request: wire.AttemptClockRequest) -> wire.AttemptClockReply:
        return wire.AttemptClockReply(began_at=self._began_at)

    async def _deregister(self, request: wire.DeregisterRequest) -> wire.Ack:
        log.info("%s deregistered", request.worker_id)
        self._workers.deregister(request.worker_id)
        self._notify()
        return wire.Ack()

    async def _load_claim(self, request: wire.LoadClaimRequest) -> wire.LoadClaimReply:
        return self._workers.load_claim(request.worker_id, now=self._now())

    async def _ack(self, request: wire.AckRequest) -> wire.Ack:
        engine = self._workers.acknowledge(request, now=self._now())
        if engine.stale:
            self._telemetry.note(
                "engine_stale",
                f"{request.worker_id} is STALE at version {request.version}: {request.message}",
            )
        await self._delete_old_weights()
        self._notify()
        return wire.Ack()

    async def _evaluator(self, request: wire.EvaluatorRequest) -> wire.EvaluatorReply:
        reply = self._workers.serve_evaluator(request, now=self._now())
        self._notify()
        return reply

    async def _evaluation_result(self, request: wire.EvaluationResult) -> wire.Ack:
        finished = self._workers.finish_evaluation(request, now=self._now())
        if finished is not None:
            label, scores = finished
            log.info("evaluation %s: %s", label, scores)
            plan = self._state.evaluations.plan
            if plan is not None and not plan.texts_only:
                self._telemetry.evaluation(scores, self._state.evaluations.by_prompt)
        self._notify()
        return wire.Ack()

    async def _evaluation_failed(self, request: wire.EvaluationFailure) -> wire.Ack:
        log.warning("evaluation %s: %s: %s", request.task_id, request.cause, request.message)
        self._workers.fail_evaluation(request, now=self._now())
        self._notify()
        return wire.Ack()

    async def _get_state(self, request: wire.StateRequest) -> wire.StateReply:
        def newer() -> wire.StateReply | None:
            reply = (
                self._workers.state(request.worker_id, now=self._now())
                if request.worker_id
                else self._state.status()
            )
            return reply if reply.newest_version > request.after_version or reply.ended else None

        return await self._poll(newer, request.wait_seconds) or self._state.status()

    # --- trainer ------------------------------------------------------------------------------------------

    async def _announce(self, request: wire.PublishVersionRequest) -> wire.Ack:
        batch = _version_checked(lambda: self._trainer.announce(request))
        log.info("version %d announced (%s)", request.version, request.outcome)
        if batch is not None:
            self._telemetry.trained(batch, request.tokens)
        self._notify()
        await self._delete_old_weights()
        return wire.Ack()

    async def _take(self, request: wire.TakeRequest) -> wire.TakeReply:
        def attempt() -> wire.TakeReply | None:
            reply = _version_checked(lambda: self._trainer.take(request, now=self._now()))
            return reply if reply.groups or reply.ended else None

        reply = await self._poll(attempt, request.wait_seconds)
        self._notify()
        if reply is None:
            return wire.TakeReply(groups=[], buffered=len(self._state.groups.buffered))
        return msgspec.structs.replace(reply, sampled=recorded_trajectories(reply.groups))

    async def _snapshot(self, request: wire.SnapshotRequest) -> wire.SnapshotReply:
        snapshot = _version_checked(lambda: self._trainer.snapshot(request.version))
        return wire.SnapshotReply(snapshot=snapshots.encode(snapshot))

    async def _probes(self, request: wire.ProbesRequest) -> wire.ProbesReply:
        return self._trainer.take_probes()

    async def _stale_engine(self, request: wire.StaleEngineRequest) -> wire.Ack:
        engine = self._trainer.mark_stale(request, now=self._now())
        finding = "is STALE" if engine.stale else "was wrong, and has loaded a newer version since"
        self._telemetry.note(
            "engine_stale",
            f"{request.worker_id} {finding}: at version {request.version} its log-probabilities differ from the "
            f"trainer's by {request.max_difference:.3g}",
        )
        return wire.Ack()

    async def _end(self, request: wire.EndRequest) -> wire.Ack:
        log.info("the trainer takes no more batches: %s", request.reason)
        self._trainer.end(request)
        self._notify()
        return wire.Ack()

    # --- polls and files ----------------------------------------------------------------------------------

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_change(self, seconds: float) -> None:
        # Not wait_for, which in Python 3.11 loses a cancellation that arrives together with the change: the poll of a
        # disconnected caller would continue and make a claim for nobody.
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _poll(self, attempt: Callable[[], Value | None], wait_seconds: float) -> Value | None:
        deadline = time.monotonic() + min(wait_seconds, MAX_POLL_SECONDS)
        while (value := attempt()) is None and (left := deadline - time.monotonic()) > 0:
            await self._wait_for_change(left)
        return value

    async def _delete_old_weights(self) -> None:
        # A caller that disconnects cancels its handler; the versions that were collected must still be deleted.
        await asyncio.shield(asyncio.ensure_future(self._delete_collected_weights()))

    async def _delete_collected_weights(self) -> None:
        for weights in self._state.versions.collect_deletable():
            await asyncio.to_thread(_delete_tree, Path(weights.directory))


def _delete_tree(directory: Path) -> None:
    # Renamed first: a reader without a load claim must not find half a directory under a version's name.
    renamed = directory.with_name(f".deleted-{directory.name}")
    try:
        directory.rename(renamed)
    except FileNotFoundError:
        log.warning("weights %s were deleted by somebody else", directory)
        return
    shutil.rmtree(renamed)


def _version_checked(call: Callable[[], Value]) -> Value:
    try:
        return call()
    except VersionConflict as error:
        raise RpcError(409, "stale_epoch", str(error)) from error
