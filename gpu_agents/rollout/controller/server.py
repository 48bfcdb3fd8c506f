"""The controller's door: the verbs over HTTP, long polls, the clock, and the deletion of old weights."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpu_agents.channel import Door, Refuse
from gpu_agents.rollout.controller import snapshot as snapshots
from gpu_agents.rollout.controller.controller import Controller, VersionConflict
from gpu_agents.rollout.controller.group_store import StaleClaim
from gpu_agents.rollout.controller.stall_aware_clock import StallAwareClock
from gpu_agents.rollout.controller.telemetry import ControllerTelemetry
from oolong.contracts import rollout as wire
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.live_changes import LiveFile

log = logging.getLogger(__name__)

Value = TypeVar("Value")

LONGEST_POLL_SECONDS = 30.0
TICK_SECONDS = 1.0
STUCK_SECONDS = 120.0


class ControllerServer:
    """Serves one Controller. All state changes happen on the event loop, so each verb is atomic."""

    def __init__(
        self,
        controller: Controller,
        telemetry: ControllerTelemetry,
        *,
        token: str,
        live: LiveFile,
        clock: StallAwareClock | None = None,
    ) -> None:
        self.controller = controller
        self._now = clock or StallAwareClock()  # of claims and engines; a poll waits by the loop's own time
        self._telemetry = telemetry
        self._live = live
        self._tell_changes(controller.change(live.settings))
        self._changed = asyncio.Event()
        self.door = Door(token)
        for name, request, handler in (
            ("claim", wire.ClaimRequest, self._claim),
            ("renew", wire.RenewRequest, self._renew),
            ("submit", wire.SubmitRequest, self._submit),
            ("fail", wire.FailRequest, self._fail),
            ("give_back", wire.GiveBackRequest, self._give_back),
            ("leave", wire.LeaveRequest, self._leave),
            ("load_claim", wire.LoadClaimRequest, self._load_claim),
            ("ack", wire.AckRequest, self._ack),
            ("evaluator", wire.EvaluatorRequest, self._evaluator),
            ("evaluation_result", wire.EvaluationResult, self._evaluation_result),
            ("evaluation_failed", wire.EvaluationFailure, self._evaluation_failed),
            ("state", wire.StateRequest, self._state),
            ("announce", wire.AnnounceRequest, self._announce),
            ("take", wire.TakeRequest, self._take),
            ("snapshot", wire.SnapshotRequest, self._snapshot),
            ("probes", wire.ProbesRequest, self._probes),
            ("stale_engine", wire.StaleEngineRequest, self._stale_engine),
            ("end", wire.EndRequest, self._end),
        ):
            self.door.verb(name, request, handler)  # type: ignore[arg-type]

    async def run_clock(self) -> None:
        """What time changes, and the live document, once a second; for ever."""
        while True:
            self._tell(self.controller.tick(now=self._now()))
            if self._live.poll():
                self._take_changes()
            await self._delete_old_weights()
            self._notify()
            self._telemetry.publish(self.controller, now=time.time())
            await self._now.sleep(TICK_SECONDS)

    def tell_what_is_left(self) -> None:
        """What was noted since the clock's last turn, before the telemetry is closed."""
        self._tell(self.controller.take_notes())

    def _tell(self, notes: list[str]) -> None:
        for note in notes:
            log.warning(note)
            self._telemetry.note("rollout", note)

    def _take_changes(self) -> None:
        settings, before = self._live.settings, self._live.before
        self._tell_changes(self.controller.change(settings))
        if settings.evaluation_wishes > before.evaluation_wishes:
            self._tell_changes([self.controller.evaluate_now(settings.evaluation_wishes)])

    def _tell_changes(self, notes: list[str]) -> None:
        for note in notes:
            log.info(note)
            self._telemetry.note("live_change", note)

    async def wait_until_ended(self) -> None:
        while not self.controller.ended:
            await self._wait_for_change(TICK_SECONDS)

    async def wait_until_told(self, *, seconds: float) -> None:
        """Until every worker that still listens knows of the end, or the time is over."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self.controller.everyone_knows_the_end(now=self._now()):
                return
            await self._wait_for_change(min(left, TICK_SECONDS))

    async def wait_until_hopeless(self) -> tuple[EndReason, str]:
        """Until the run cannot go on: so many groups in a row failed in the reward service or in their workflow, or
        were filtered, that none will succeed, or every engine is STALE and no newer version comes. Returns the reason
        and its words."""
        bound = max(16, 2 * self.controller.rules.gate.groups_per_step)
        counts = self.controller.counts
        while True:
            if counts.consecutive_reward_errors >= bound:
                return (
                    EndReason.REWARD_ERRORS,
                    f"{bound} groups in a row were not scored; last: {counts.last_error}",
                )
            rules, in_a_row = self.controller.rules.filter, self.controller.filtering.in_a_row
            if in_a_row >= rules.max_in_a_row:
                return (
                    EndReason.ALL_FILTERED,
                    f"{in_a_row} groups in a row were filtered by rollout.filter.kind={rules.kind} and none was kept",
                )
            if counts.consecutive_workflow_errors >= bound:
                return (
                    EndReason.WORKFLOW_ERRORS,
                    f"the workflow of {bound} groups in a row failed; last: {counts.last_error}",
                )
            if self.controller.stuck_seconds(now=self._now()) > STUCK_SECONDS:
                return (
                    EndReason.MODEL_UNUSABLE,
                    f"every engine has been STALE for {STUCK_SECONDS:g} s: the weights do not load, or engine and "
                    "trainer compute different log-probabilities; the run's events say which",
                )
            await self._wait_for_change(TICK_SECONDS)

    # --- workers ------------------------------------------------------------------------------------------

    async def _claim(self, request: wire.ClaimRequest) -> wire.ClaimReply:
        def attempt() -> wire.ClaimReply | None:
            reply = self.controller.claim(request, now=self._now())
            nothing = not reply.groups and reply.evaluation is None and not reply.ended
            worth_waiting = nothing and reply.refusal != "engine_behind"
            return None if worth_waiting else reply

        reply = await self._poll(attempt, request.wait_seconds)
        if reply is None:
            reply = self.controller.claim(request, now=self._now())
        if reply.groups or reply.ended:
            self._notify()
        return reply

    async def _renew(self, request: wire.RenewRequest) -> wire.RenewReply:
        reply = self.controller.renew(request, now=self._now())
        if reply.ended:
            self._notify()
        return reply

    async def _submit(self, request: wire.SubmitRequest) -> wire.Done:
        try:
            self.controller.submit(request, now=self._now())
        except StaleClaim as error:
            raise Refuse(409, "late", str(error)) from error
        except ValueError as error:
            raise Refuse(400, "malformed", str(error)) from error
        self._notify()
        return wire.Done()

    async def _fail(self, request: wire.FailRequest) -> wire.Done:
        log.warning("group of claim %s failed: %s: %s", request.claim_id, request.reason, request.message)
        try:
            self.controller.fail(request, now=self._now())
        except StaleClaim as error:
            raise Refuse(409, "late", str(error)) from error
        self._notify()
        return wire.Done()

    async def _give_back(self, request: wire.GiveBackRequest) -> wire.Done:
        try:
            self.controller.give_back(request, now=self._now())
        except StaleClaim as error:
            raise Refuse(409, "late", str(error)) from error
        self._notify()
        return wire.Done()

    async def _leave(self, request: wire.LeaveRequest) -> wire.Done:
        log.info("%s leaves the run", request.worker_id)
        self.controller.leave(request.worker_id, now=self._now())
        self._notify()
        return wire.Done()

    async def _load_claim(self, request: wire.LoadClaimRequest) -> wire.LoadClaimReply:
        return self.controller.load_claim(request.worker_id, now=self._now())

    async def _ack(self, request: wire.AckRequest) -> wire.Done:
        engine = self.controller.acknowledge(request, now=self._now())
        if engine.stale:
            self._telemetry.note(
                "engine_stale",
                f"{request.worker_id} is STALE at version {request.version}: {request.message}",
            )
        await self._delete_old_weights()
        self._notify()
        return wire.Done()

    async def _evaluator(self, request: wire.EvaluatorRequest) -> wire.EvaluatorReply:
        reply = self.controller.serve_evaluator(request, now=self._now())
        self._notify()
        return reply

    async def _evaluation_result(self, request: wire.EvaluationResult) -> wire.Done:
        finished = self.controller.finish_evaluation(request, now=self._now())
        if finished is not None:
            label, scores = finished
            log.info("evaluation %s: %s", label, scores)
            plan = self.controller.evaluations.plan
            if plan is not None and not plan.texts_only:
                self._telemetry.evaluation(scores, self.controller.evaluations.by_prompt)
        self._notify()
        return wire.Done()

    async def _evaluation_failed(self, request: wire.EvaluationFailure) -> wire.Done:
        log.warning("evaluation %s: %s: %s", request.task_id, request.cause, request.message)
        self.controller.fail_evaluation(request, now=self._now())
        self._notify()
        return wire.Done()

    async def _state(self, request: wire.StateRequest) -> wire.StateReply:
        def newer() -> wire.StateReply | None:
            state = self.controller.state(worker_id=request.worker_id, now=self._now())
            return state if state.newest_version > request.after_version or state.ended else None

        return await self._poll(newer, request.wait_seconds) or self.controller.state()

    # --- trainer ------------------------------------------------------------------------------------------

    async def _announce(self, request: wire.AnnounceRequest) -> wire.Done:
        batch = _in_order(lambda: self.controller.announce(request))
        log.info("version %d announced (%s)", request.version, request.outcome)
        if batch is not None:
            self._telemetry.trained(batch)
        self._notify()
        await self._delete_old_weights()
        return wire.Done()

    async def _take(self, request: wire.TakeRequest) -> wire.TakeReply:
        def attempt() -> wire.TakeReply | None:
            reply = _in_order(lambda: self.controller.take(request, now=self._now()))
            return reply if reply.groups or reply.ended else None

        reply = await self._poll(attempt, request.wait_seconds)
        self._notify()
        return reply or wire.TakeReply(groups=[], buffered=len(self.controller.buffered))

    async def _snapshot(self, request: wire.SnapshotRequest) -> wire.SnapshotReply:
        image = _in_order(lambda: self.controller.snapshot(request.version))
        return wire.SnapshotReply(snapshot=snapshots.encode(image))

    async def _probes(self, request: wire.ProbesRequest) -> wire.ProbesReply:
        return self.controller.take_probes()

    async def _stale_engine(self, request: wire.StaleEngineRequest) -> wire.Done:
        engine = self.controller.mark_stale(request, now=self._now())
        verb = "is STALE" if engine.stale else "was off, and has loaded a newer version since"
        self._telemetry.note(
            "engine_stale",
            f"{request.worker_id} {verb}: at version {request.version} its log-probabilities differ from the "
            f"trainer's by {request.max_difference:.3g}",
        )
        return wire.Done()

    async def _end(self, request: wire.EndRequest) -> wire.Done:
        log.info("the trainer takes no more batches: %s", request.reason)
        self.controller.end(request, now=self._now())
        self._notify()
        return wire.Done()

    # --- inside -------------------------------------------------------------------------------------------

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_change(self, seconds: float) -> None:
        # Not wait_for, which in Python 3.11 loses a cancellation that comes together with the change: the poll of a
        # caller that is gone would go on, and take a claim for nobody.
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _poll(self, attempt: Callable[[], Value | None], wait_seconds: float) -> Value | None:
        deadline = time.monotonic() + min(wait_seconds, LONGEST_POLL_SECONDS)
        while (value := attempt()) is None and (left := deadline - time.monotonic()) > 0:
            await self._wait_for_change(left)
        return value

    async def _delete_old_weights(self) -> None:
        # A caller that hangs up ends its handler; what was named for deletion must still go.
        await asyncio.shield(asyncio.ensure_future(self._delete_named_weights()))

    async def _delete_named_weights(self) -> None:
        for weights in self.controller.collect_deletable():
            await asyncio.to_thread(_delete_tree, Path(weights.directory))


def _delete_tree(directory: Path) -> None:
    # Renamed first: a reader that holds no load claim must not find half a directory under a version's name.
    doomed = directory.with_name(f".deleted-{directory.name}")
    try:
        directory.rename(doomed)
    except FileNotFoundError:
        log.warning("weights %s were gone before they were deleted", directory)
        return
    shutil.rmtree(doomed)


def _in_order(verb: Callable[[], Value]) -> Value:
    try:
        return verb()
    except VersionConflict as error:
        raise Refuse(409, "fenced", str(error)) from error
