"""What the trainer calls: announce versions, take batches, snapshot, verify probes, end the run."""

from __future__ import annotations

import msgspec

from gpu_agents.rollout.controller.batch_assembler import BatchAssembler, TrainedBatch
from gpu_agents.rollout.controller.engine_registry import Engine
from gpu_agents.rollout.controller.ledger import DropReason
from gpu_agents.rollout.controller.snapshot import Snapshot
from gpu_agents.rollout.controller.state import ControllerState
from gpu_agents.rollout.controller.versions import VersionConflict, require_version
from oolong.contracts.rollout import (
    EndRequest,
    ProbesReply,
    PublishedWeights,
    PublishVersionRequest,
    StaleEngineRequest,
    TakeReply,
    TakeRequest,
)


class TrainerApi:
    """Raises VersionConflict for a call that the current version does not allow. Repeated calls change nothing."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._batches = BatchAssembler(state.groups, state.consumed, state.counters, notes=state.notes)

    def announce(self, request: PublishVersionRequest) -> TrainedBatch | None:
        """A version is complete on disk: the taken groups count as trained and the gate advances."""
        state = self._state
        if request.outcome == "none":
            self._announce_first(request)
            return None
        if request.outcome == "nonfinite":
            require_version(request.version, state.versions.number, "a skipped step keeps its version")
            state.groups.drop_taken(DropReason.NONFINITE)
            return None
        if request.version == state.versions.number and not state.groups.taken:
            return None  # repeated: the first reply was lost
        require_version(request.version, state.versions.number + 1, "versions are announced one by one")
        weights = _require_weights(request)
        if not state.groups.taken:
            raise VersionConflict(
                f"version {request.version} was announced as trained, but no batch was taken for it"
            )
        batch = self._batches.train(request.version, filtering=state.filtering)
        if state.config.straggler_policy == "drop":
            state.groups.drop_expiring(request.version)
        self._publish(weights)
        state.evaluation_scheduler.request_if_due(last_version=state.config.gate.total_train_steps)
        return batch

    def take(self, request: TakeRequest, *, now: float) -> TakeReply:
        """Take one batch to train at the announced version; the reply is empty while there is none."""
        state = self._state
        require_version(
            request.version, state.versions.number, "a batch is taken only at the announced version"
        )
        if state.ending:
            return TakeReply(groups=[], ended=True)
        if state.groups.taken:  # repeated: the first reply was lost
            return TakeReply(groups=state.groups.taken_groups(), buffered=len(state.groups.buffered))
        return self._batches.take(
            request, policy=state.config.straggler_policy, last_chance=state.no_group_can_finish, now=now
        )

    def snapshot(self, version: int) -> Snapshot:
        """The controller's part of a checkpoint, at the boundary after `version` was announced."""
        state = self._state
        require_version(version, state.versions.number, "a snapshot is taken at the announced version")
        return msgspec.structs.replace(
            state.groups.snapshot(version),
            consumed=state.consumed,
            evaluations=state.evaluations.scores,
            unfinished_evaluation=state.evaluation_scheduler.unfinished,
        )

    def take_probes(self) -> ProbesReply:
        """Return and clear the probes that engines sent with their acknowledgements."""
        probes, self._state.probes = self._state.probes, []
        return ProbesReply(probes=probes)

    def mark_stale(self, request: StaleEngineRequest, *, now: float) -> Engine:
        """The engine's log-probabilities differ from the trainer's: it gets no groups until its next good load."""
        return self._state.engines.mark_stale(request.worker_id, request.version, now=now)

    def end(self, request: EndRequest) -> None:
        """The trainer takes no more batches: drop what is left, run the closing evaluation, then end."""
        state = self._state
        if state.ending:
            return
        state.ending = request.reason
        state.groups.drop_everything(DropReason.RUN_END)
        if not state.evaluation_scheduler.request_at_end(completed=request.reason == "completed"):
            state.ended = True

    def _announce_first(self, request: PublishVersionRequest) -> None:
        state = self._state
        if state.versions.newest is not None:
            require_version(request.version, state.versions.number, "the first version is announced already")
            return
        if state.restored_version is not None:
            require_version(
                request.version, state.restored_version, "trainer and controller must resume one checkpoint"
            )
        elif state.ledger.trained == 0 and request.version != 0:
            raise VersionConflict(
                f"the trainer starts at version {request.version} but the controller has no snapshot: give both "
                "the same resume_directory"
            )
        weights = _require_weights(request)
        state.groups.raise_bounds(state.config.gate.max_staleness)
        self._publish(weights)
        scheduler, last_version = state.evaluation_scheduler, state.config.gate.total_train_steps
        if request.version == 0:
            scheduler.request_at_start()
        scheduler.request_if_due(last_version=last_version)
        scheduler.request_interrupted(last_version=last_version)

    def _publish(self, weights: PublishedWeights) -> None:
        self._state.versions.announce(weights)
        self._state.counters.versions_announced += 1


def _require_weights(request: PublishVersionRequest) -> PublishedWeights:
    if request.weights is None:
        raise VersionConflict(f"version {request.version} was announced without its weights")
    return request.weights
