"""What changes with time alone: expired claims, engines that timed out, evaluations that nobody can run."""

from __future__ import annotations

from gpu_agents.rollout.controller.state import ControllerState


class Timers:
    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._all_stale_since: float | None = None

    def tick(self, *, now: float) -> list[str]:
        """Apply every timeout as of `now`. Returns notes for the run's events."""
        state = self._state
        for claim in state.groups.requeue_expired(now=now):
            state.notes.append(f"group {claim.group_id} will be claimed again: {claim.worker_id} timed out")
        for claim in state.groups.drop_timed_out(now=now):
            state.counters.last_error = (
                f"{claim.group_id}: over group_timeout_seconds={state.config.group_timeout_seconds}"
            )
        for worker_id in state.engines.expired(now=now):
            state.notes.append(f"{worker_id} timed out: the run continues without its engine")
            state.remove_worker(worker_id)
        for worker_id in state.versions.expire_loads(now=now):
            state.notes.append(f"{worker_id} timed out while it loaded weights")
        if not state.evaluation_scheduler.tick(now=now, ending=bool(state.ending)):
            state.ended = True
        return state.take_notes()

    def all_stale_seconds(self, *, now: float) -> float:
        """How long every engine has been STALE: no groups, so no batch, so no newer version to load."""
        live = self._state.engines.live(now=now)
        if self._state.ending or not live or not all(engine.stale for engine in live):
            self._all_stale_since = None
        elif self._all_stale_since is None:
            self._all_stale_since = now
        return 0.0 if self._all_stale_since is None else now - self._all_stale_since
