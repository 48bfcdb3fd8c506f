"""Milestones of an attempt, and how long it has been stalled: read by the boot checklist and the alerts."""

from __future__ import annotations

from gpu_agents.rollout.controller.state import ControllerState
from oolong.contracts.rollout import BOOT_MILESTONES


class AttemptProgress:
    """Updated about once a second. Times are unix seconds."""

    def __init__(self) -> None:
        self.milestones: dict[str, float] = {}
        self._stalled_since: dict[str, float] = {}

    def update(self, state: ControllerState, *, now: float) -> None:
        """Record the milestones that were reached since the last update, and the stalls that hold."""
        for name in _reached(state):
            self.milestones.setdefault(name, now)
        stalls = _stalls(state)
        for name in stalls:
            self._stalled_since.setdefault(name, now)
        self._stalled_since = {name: at for name, at in self._stalled_since.items() if name in stalls}

    def stall_metrics(self, *, now: float) -> dict[str, float]:
        """Seconds for which each kind of stall has lasted; 0 while it does not hold."""
        since = self._stalled_since
        return {
            "gate/stalled_seconds": now - since.get("gate", now),
            "buffer/batch_unclaimed_seconds": now - since.get("buffer", now),
            "weight_sync/unloaded_seconds": now - since.get("weights", now),
        }


def _reached(state: ControllerState) -> list[str]:
    counters = state.counters
    first_step = counters.versions_announced > 1
    first_batch = first_step or bool(state.groups.taken)
    reached = {
        "engine_serves": counters.acks > 0,
        "trainer_ready": state.versions.newest is not None,
        "first_rollout": first_batch or bool(state.groups.running),
        "first_group": first_batch or counters.finished_groups > 0,
        "first_batch": first_batch,
        "first_step": first_step,
    }
    return [name for name in BOOT_MILESTONES if reached[name]]


def _stalls(state: ControllerState) -> set[str]:
    """The kinds of stall that hold at this moment."""
    if state.ending or state.versions.newest is None:
        return set()
    stalls = set()
    if not state.groups.taken:
        if len(state.groups.buffered) >= state.config.gate.groups_per_step:
            stalls.add("buffer")
        elif state.no_group_can_finish:
            stalls.add("gate")
    if state.counters.acks and not any(
        engine.version == state.versions.number and not engine.stale for engine in state.engines.all()
    ):
        stalls.add("weights")
    return stalls
