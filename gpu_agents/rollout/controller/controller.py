"""One attempt's rollout controller: its state, and one interface for each of its counterparts.

Who waits for whom: workers wait for the gate (`claim`), the trainer waits for a batch (`take`), the gate waits for the
trainer (`announce`).
"""

from __future__ import annotations

from dataclasses import replace

from gpu_agents.rollout.controller.state import ControllerState
from gpu_agents.rollout.controller.timers import Timers
from gpu_agents.rollout.controller.trainer_api import TrainerApi
from gpu_agents.rollout.controller.worker_api import WorkerApi
from oolong.contracts.rollout import EndRequest, PublishedWeights, PublishVersionRequest
from oolong.contracts.runtime_overrides import RuntimeOverrides


class Controller:
    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self.workers = WorkerApi(state)
        self.trainer = TrainerApi(state)
        self.timers = Timers(state)

    def apply_overrides(self, overrides: RuntimeOverrides) -> list[str]:
        """Apply settings that were changed during the run. Returns notes for the run's events.

        The gate changes at once. A group that was admitted under a higher max staleness keeps that one.
        """
        state, before = self.state, self.state.config.gate
        gate = replace(
            before,
            max_staleness=before.max_staleness
            if overrides.max_staleness is None
            else overrides.max_staleness,
            max_concurrent_groups=overrides.max_concurrent_groups or before.max_concurrent_groups,
        )
        notes = []
        if gate.max_staleness != before.max_staleness:
            # Before the first announcement: the version of the restored groups.
            version = max(state.versions.number, state.restored_version or 0)
            notes.append(
                f"max staleness is {gate.max_staleness} from version {version} on (it was {before.max_staleness})"
            )
        if gate.max_concurrent_groups != before.max_concurrent_groups:
            notes.append(
                f"at most {gate.max_concurrent_groups} groups run at once (it was {before.max_concurrent_groups})"
            )
        state.config = replace(state.config, gate=gate)
        state.groups.raise_bounds(gate.max_staleness)
        return notes

    def evaluate_now(self, number: int) -> str:
        """Request an evaluation of the newest version, on the only engine too. Returns a note with the outcome."""
        return self.state.evaluation_scheduler.request_now(number, ending=bool(self.state.ending))

    def evaluate_only(self, weights: PublishedWeights) -> None:
        """Score these weights once, then end: what a run of kind eval does."""
        self.trainer.announce(PublishVersionRequest(version=0, outcome="none", weights=weights))
        self.trainer.end(EndRequest(reason="completed"))
