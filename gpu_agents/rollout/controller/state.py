"""The rollout state of one attempt, shared by the worker API, the trainer API and the timers.

No clock, no network and no disk: callers pass `now` and write the files. One thread calls everything here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpu_agents.rollout.controller.config import ControllerConfig
from gpu_agents.rollout.controller.counters import Counters
from gpu_agents.rollout.controller.engine_registry import Engine, EngineRegistry
from gpu_agents.rollout.controller.evaluation_scheduler import EvaluationScheduler
from gpu_agents.rollout.controller.evaluations import EvaluationPlan, Evaluations
from gpu_agents.rollout.controller.filtering import FilterCounts
from gpu_agents.rollout.controller.gate import Admission, admit
from gpu_agents.rollout.controller.group_store import GroupStore
from gpu_agents.rollout.controller.ledger import Ledger, TokenLedger
from gpu_agents.rollout.controller.prompt_order import PromptSource
from gpu_agents.rollout.controller.snapshot import Snapshot
from gpu_agents.rollout.controller.staleness_stats import ConsumedTotals
from gpu_agents.rollout.controller.versions import Versions
from oolong.contracts.rollout import AckedProbe, EvaluationPrompt, StateReply


class ControllerState:
    """`prompt_of(row)` returns the rendered prompt, its token ids and its answer."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        prompts: Mapping[str, PromptSource],
        prompt_of: Callable[[int], EvaluationPrompt],
        evaluation: EvaluationPlan | None = None,
        restored: Snapshot | None = None,
        tokens_generated_before: int = 0,
    ) -> None:
        self.config = config
        self.prompt_of = prompt_of
        self.versions = Versions()
        self.groups = GroupStore(config=config, prompts=prompts, versions=self.versions, restored=restored)
        self.groups.tokens.recover(tokens_generated_before)
        self.consumed = restored.consumed if restored else ConsumedTotals()
        self.filtering = FilterCounts()
        self.engines = EngineRegistry()
        self.counters = Counters()
        self.probes: list[AckedProbe] = []  # that the trainer has not verified yet
        self.ending = ""  # the trainer's reason, once it takes no more batches
        self.ended = False
        self.restored_version = restored.version if restored else None
        self.notes: list[str] = []  # for the run's events, published at the next tick
        self.evaluation_scheduler = EvaluationScheduler(
            evaluation,
            restored.evaluations if restored else None,
            interrupted_label=restored.unfinished_evaluation if restored else "",
            versions=self.versions,
            engines=self.engines,
            notes=self.notes,
        )

    @property
    def ledger(self) -> Ledger:
        return self.groups.ledger

    @property
    def tokens(self) -> TokenLedger:
        return self.groups.tokens

    @property
    def evaluations(self) -> Evaluations:
        return self.evaluation_scheduler.evaluations

    def admission(self) -> Admission:
        """How many groups may start now."""
        if self.ending:
            return Admission(groups=0, refusal="run_ending")
        if self.versions.newest is None:
            return Admission(groups=0, refusal="paused")
        return admit(
            self.config.gate,
            version=self.versions.number,
            held=self.ledger.held,
            running=len(self.groups.running),
            waiting=len(self.groups.waiting),
        )

    @property
    def no_group_can_finish(self) -> bool:
        """No group is running or waiting and the gate admits none: the buffer gets nothing until a step is trained."""
        return not self.groups.running and not self.groups.waiting and not self.admission().groups

    def touch(self, worker_id: str, *, now: float) -> Engine:
        """Record a sign of life. The first call registers the engine and removes its earlier incarnations."""
        for predecessor in self.engines.predecessors(worker_id):
            self.notes.append(f"{predecessor} is gone: {worker_id} replaced it")
            self.remove_worker(predecessor)
        self.versions.touch(worker_id, now=now)
        return self.engines.touch(worker_id, now=now)

    def remove_worker(self, worker_id: str) -> None:
        """Deregister an engine. Its running groups wait for another engine and restart there."""
        if self.evaluations.remove_evaluator(worker_id):
            return
        if not self.engines.remove(worker_id):
            return
        self.groups.requeue_worker(worker_id)
        self.versions.end_load(worker_id)
        self.evaluations.release(worker_id)

    def status(self) -> StateReply:
        admission = self.admission()
        return StateReply(
            newest_version=self.versions.number,
            weights=self.versions.newest,
            paused=False,
            ended=self.ended,
            admissible_groups=admission.groups,
            refusal=admission.refusal,
            ledger=self.ledger.counts(),
            tokens=self.tokens.counts(),
        )

    def end_acked_by_all(self, *, now: float) -> bool:
        """Whether every live engine and evaluator knows that the run has ended."""
        acked = [engine.end_acked for engine in self.engines.live(now=now)]
        acked += [evaluator.dismissed for evaluator in self.evaluations.evaluators.all()]
        return self.ended and all(acked)

    def take_notes(self) -> list[str]:
        """Return and clear the notes since the last call."""
        notes = self.notes.copy()
        self.notes.clear()
        return notes
