"""The verbs of the controller over its nouns. No clock, no network, no disk: `now` and files are the caller's.

Who waits for whom: workers wait for the gate (`claim`), the trainer waits for a batch (`take`), the gate waits
for the trainer (`announce`). Everything here is called from one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from gpu_agents.rollout.controller.batch_assembler import BatchAssembler, TrainedBatch
from gpu_agents.rollout.controller.config import ControllerConfig
from gpu_agents.rollout.controller.counters import Counters
from gpu_agents.rollout.controller.engine_registry import Engine, EngineRegistry
from gpu_agents.rollout.controller.evaluation_scheduler import EvaluationScheduler
from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores
from gpu_agents.rollout.controller.evaluations import EvaluationPlan
from gpu_agents.rollout.controller.filtering import FilterCounts, is_filtered
from gpu_agents.rollout.controller.gate import Admission, admit
from gpu_agents.rollout.controller.group_state import GroupState, group_tokens, sampled_tokens
from gpu_agents.rollout.controller.group_store import GroupStore
from gpu_agents.rollout.controller.group_validation import validate_group
from gpu_agents.rollout.controller.ledger import DropReason
from gpu_agents.rollout.controller.snapshot import Snapshot
from gpu_agents.rollout.controller.staleness_stats import ConsumedTotals, version_span
from gpu_agents.rollout.controller.versions import Versions
from oolong.contracts.live_changes import LiveSettings
from oolong.contracts.rollout import (
    AckedProbe,
    AckRequest,
    AnnounceRequest,
    ClaimedGroup,
    ClaimReply,
    ClaimRequest,
    EndRequest,
    EvaluationFailure,
    EvaluationPrompt,
    EvaluationResult,
    EvaluatorReply,
    EvaluatorRequest,
    FailRequest,
    GiveBackRequest,
    LoadClaimReply,
    ProbesReply,
    PublishedWeights,
    Refusal,
    RenewReply,
    RenewRequest,
    StaleEngineRequest,
    StateReply,
    SubmitRequest,
    TakeReply,
    TakeRequest,
)


class VersionConflict(Exception):
    """The trainer asked for something that the current version does not allow; the message names both."""


class Controller:
    """One attempt's rollout state. `prompt_of(row)` gives (token ids, rendered text, answer)."""

    def __init__(
        self,
        *,
        rules: ControllerConfig,
        rows: list[int],
        prompt_of: Callable[[int], EvaluationPrompt],
        evaluation: EvaluationPlan | None = None,
        restored: Snapshot | None = None,
        tokens_generated_before: int = 0,
    ) -> None:
        self.rules = rules
        self._prompt_of = prompt_of
        self.versions = Versions()
        self.groups = GroupStore(rules=rules, rows=rows, versions=self.versions, restored=restored)
        self.ledger, self.tokens = self.groups.ledger, self.groups.tokens
        self.tokens.recover(tokens_generated_before)
        self.waiting, self.running = self.groups.waiting, self.groups.running  # to be read here, moved there
        self.buffered, self.taken = self.groups.buffered, self.groups.taken
        self.consumed = restored.consumed if restored else ConsumedTotals()
        self.filtering = FilterCounts()
        self.engines = EngineRegistry()
        self.counts = Counters()
        self.ending: str = ""  # the trainer's reason, once it has said that no batch will be taken any more
        self.ended = False
        self._restored_version = restored.version if restored else None
        self._probes: list[AckedProbe] = []
        self._all_stale_since: float | None = None
        self._notes: list[str] = []  # for the run's events, at the next tick
        self._batches = BatchAssembler(self.groups, self.consumed, self.counts, notes=self._notes)
        self._evaluation_desk = EvaluationScheduler(
            evaluation,
            restored.evaluations if restored else None,
            left_over=restored.unfinished_evaluation if restored else "",
            versions=self.versions,
            engines=self.engines,
            notes=self._notes,
        )
        self.evaluations = self._evaluation_desk.evaluations

    # --- workers ------------------------------------------------------------------------------------------

    def claim(self, request: ClaimRequest, *, now: float) -> ClaimReply:
        """Hand out groups to an engine that has the newest version: waiting ones first, then new ones."""
        engine = self._hear(request.worker_id, now=now)
        if self.ended:
            engine.told_end = True
            return ClaimReply(ended=True, newest_version=self.versions.number)
        task = None
        if not engine.stale:
            task = self._evaluation_desk.lease(request.worker_id, request.engine_version, now=now)
        if task is not None:
            return ClaimReply(evaluation=task, newest_version=self.versions.number)
        groups: list[ClaimedGroup] = []
        refusal = self._claim_refusal(engine, request.engine_version)
        if refusal is None:
            while len(groups) < request.max_groups:
                held, refusal = self._next_group()
                if held is None:
                    break
                groups.append(self._hand_out(held, request, now=now))
        return ClaimReply(groups=groups, refusal=refusal, newest_version=self.versions.number)

    def renew(self, request: RenewRequest, *, now: float) -> RenewReply:
        engine = self._hear(request.worker_id, now=now)
        engine.told_end = engine.told_end or self.ended
        return RenewReply(
            lost=self.groups.claims.renew(request.claim_ids, request.worker_id, now=now),
            newest_version=self.versions.number,
            ended=self.ended,
        )

    def submit(self, request: SubmitRequest, *, now: float) -> None:
        """A finished, scored group enters the buffer. Raises StaleClaim, and ValueError for one of a wrong shape."""
        self._hear(request.worker_id, now=now)
        if self.groups.is_settled(request.claim_id):
            return
        validate_group(request.group, group_size=self.rules.group_size, branching=self.rules.branching)
        held = self.groups.end_claim(
            request.claim_id, request.worker_id, late_tokens=group_tokens(request.group)
        )
        if held.group_id != request.group.group_id:
            raise ValueError(
                f"claim {request.claim_id} is for group {held.group_id}, not {request.group.group_id}"
            )
        filtered = is_filtered(self.rules.filter, request.group)
        self.filtering.count(filtered=filtered)
        if filtered:
            self.groups.filter(held, request.group)
        else:
            self.groups.finish(held, request.group)
        self.counts.finished_groups += 1
        self.counts.consecutive_reward_errors = 0
        self.counts.consecutive_workflow_errors = 0
        self.consumed.interruptions += sum(t.interruptions for t in request.group.trajectories)
        self.consumed.trajectories_spanning_versions += sum(
            version_span(t) > 1 for t in request.group.trajectories
        )

    def fail(self, request: FailRequest, *, now: float) -> None:
        """A workflow or reward error: the group is dropped, never scored 0, and its place returns."""
        self._hear(request.worker_id, now=now)
        if self.groups.is_settled(request.claim_id):
            return
        held = self.groups.end_claim(
            request.claim_id, request.worker_id, late_tokens=request.generated_tokens
        )
        reason = DropReason.FILTERED if request.reason == "filtered" else DropReason.ERROR
        self.groups.fail(held, reason, error=request.reason, generated_tokens=request.generated_tokens)
        if request.reason == "reward_error":
            self.counts.consecutive_reward_errors += 1
        if request.reason == "workflow_error":
            self.counts.consecutive_workflow_errors += 1
            self.counts.workflow_errors[request.kind or "other"] += 1
        if reason is DropReason.ERROR:
            self.counts.last_error = f"{held.group_id}: {request.reason}: {request.message}"

    def give_back(self, request: GiveBackRequest, *, now: float) -> None:
        """The worker stops; the group waits for another one, which goes on from its tokens."""
        self._hear(request.worker_id, now=now)
        if self.groups.is_settled(request.claim_id):
            return
        kept = sum(sampled_tokens(member.trajectory) for member in request.members)
        tokens = kept + request.lost_tokens
        held = self.groups.end_claim(request.claim_id, request.worker_id, late_tokens=tokens)
        self.groups.give_back(held, request.members, lost_tokens=request.lost_tokens)

    def leave(self, worker_id: str, *, now: float) -> None:
        """An engine is gone from the run; what it still had waits for another one, which begins anew."""
        if self.evaluations.evaluator_left(worker_id):
            return
        if not self.engines.leave(worker_id):
            return
        for claim in self.groups.claims.all_of_worker(worker_id):
            self.groups.claims.end(claim)
            self.groups.to_waiting(self.groups.running[claim.group_id])
        self.versions.end_load(worker_id)
        self.evaluations.release(worker_id)

    def load_claim(self, worker_id: str, *, now: float) -> LoadClaimReply:
        self._hear(worker_id, now=now)
        return LoadClaimReply(weights=self.versions.claim_load(worker_id, now=now))

    def acknowledge(self, request: AckRequest, *, now: float) -> Engine:
        self._hear(request.worker_id, now=now)
        self.versions.end_load(request.worker_id)
        engine = self.engines.acknowledge(request.worker_id, request.version, ok=request.ok, now=now)
        if request.ok:
            self.counts.acks += 1
            if request.probe is not None:
                self._probes.append(
                    AckedProbe(worker_id=request.worker_id, version=request.version, probe=request.probe)
                )
        else:
            self.counts.failed_loads += 1
        return engine

    def finish_evaluation(
        self, result: EvaluationResult, *, now: float
    ) -> tuple[str, EvaluationScores] | None:
        """Returns the label and the scores, or None for a repeated or outdated result."""
        by_evaluator = self._hear_evaluating(result.worker_id, now=now)
        finished = self._evaluation_desk.finish(result, by_evaluator=by_evaluator)
        if finished is not None and self.ending:
            self.ended = True
        return finished

    def fail_evaluation(self, failure: EvaluationFailure, *, now: float) -> None:
        self._hear_evaluating(failure.worker_id, now=now)
        if self._evaluation_desk.fail(failure) and self.ending:
            self.ended = True

    def serve_evaluator(self, request: EvaluatorRequest, *, now: float) -> EvaluatorReply:
        return self._evaluation_desk.serve_evaluator(request, now=now)

    def evaluate_only(self, weights: PublishedWeights) -> None:
        """The work of an eval run: these weights are scored once, and that is the end."""
        self.announce(AnnounceRequest(version=0, outcome="none", weights=weights))
        self.end(EndRequest(reason="completed"), now=0.0)

    # --- trainer ------------------------------------------------------------------------------------------

    def announce(self, request: AnnounceRequest) -> TrainedBatch | None:
        """A version is complete on disk: taken groups become trained, and the gate moves on."""
        if request.outcome == "none":
            self._announce_first(request)
            return None
        if request.outcome == "nonfinite":
            self._require_version(request.version, self.versions.number, "a skipped step keeps its version")
            self.groups.drop_taken(DropReason.NONFINITE)
            return None
        if request.version == self.versions.number and not self.taken:
            return None  # a repeated call: its reply was lost
        self._require_version(request.version, self.versions.number + 1, "versions are announced one by one")
        if request.weights is None:
            raise VersionConflict(f"version {request.version} was announced without its weights")
        if not self.taken:
            raise VersionConflict(
                f"version {request.version} was announced as trained, but no batch had been taken for it"
            )
        batch = self._batches.train(request.version, filtering=self.filtering)
        if self.rules.straggler_policy == "drop":
            self.groups.cancel_what_will_be_too_old(request.version)
        self._publish(request.weights)
        self._evaluation_desk.request_if_due(last_version=self.rules.gate.total_train_steps)
        return batch

    def take(self, request: TakeRequest, *, now: float) -> TakeReply:
        """One batch to train at the announced version, or an empty reply while there is none."""
        self._require_version(
            request.version, self.versions.number, "a batch is taken only at the announced version"
        )
        if self.ending:
            return TakeReply(groups=[], ended=True)
        if self.taken:  # the reply was lost: the same batch again
            return TakeReply(groups=self.groups.taken_groups(), buffered=len(self.buffered))
        return self._batches.take(
            request, policy=self.rules.straggler_policy, last_chance=self.nothing_can_change, now=now
        )

    def snapshot(self, version: int) -> Snapshot:
        """The image at the boundary after `version` was announced."""
        self._require_version(version, self.versions.number, "a snapshot is taken at the announced version")
        image = self.groups.image(version)
        return msgspec.structs.replace(
            image,
            consumed=self.consumed,
            evaluations=self.evaluations.scores,
            unfinished_evaluation=self._evaluation_desk.unfinished,
        )

    def change(self, live: LiveSettings) -> list[str]:
        """Take over what was changed while the run goes on. Returns sentences about it for the run's events.

        The gate obeys at once. A group that was admitted under a higher max staleness keeps that one.
        """
        before = self.rules.gate
        gate = replace(
            before,
            max_staleness=before.max_staleness if live.max_staleness is None else live.max_staleness,
            max_concurrent_groups=live.max_concurrent_groups or before.max_concurrent_groups,
        )
        notes = []
        if gate.max_staleness != before.max_staleness:
            # Before the first announcement, the version that the restored groups come from.
            version = max(self.versions.number, self._restored_version or 0)
            notes.append(
                f"max staleness is {gate.max_staleness} from version {version} on (it was {before.max_staleness})"
            )
        if gate.max_concurrent_groups != before.max_concurrent_groups:
            notes.append(
                f"at most {gate.max_concurrent_groups} groups run at once (it was {before.max_concurrent_groups})"
            )
        self.rules = replace(self.rules, gate=gate)
        self.groups.raise_bounds(gate.max_staleness)
        return notes

    def evaluate_now(self, number: int) -> str:
        """Ask for an evaluation of the newest version, on the only engine too. Returns what becomes of the wish."""
        return self._evaluation_desk.request_now(number, ending=bool(self.ending))

    def take_probes(self) -> ProbesReply:
        probes, self._probes = self._probes, []
        return ProbesReply(probes=probes)

    def mark_stale(self, request: StaleEngineRequest, *, now: float) -> Engine:
        return self.engines.mark_stale(request.worker_id, request.version, now=now)

    def end(self, request: EndRequest, *, now: float) -> None:
        """No batch will be taken any more: leftovers go, then the closing evaluation, then the end."""
        if self.ending:
            return
        self.ending = request.reason
        self.groups.drop_everything(DropReason.RUN_END)
        if not self._evaluation_desk.request_at_end(completed=request.reason == "completed"):
            self.ended = True

    # --- time and files -----------------------------------------------------------------------------------

    def tick(self, *, now: float) -> list[str]:
        """What time alone changes. Returns sentences about it for the run's events."""
        claims = self.groups.claims
        for claim in claims.silent(now=now):
            claims.end(claim)
            self.groups.to_waiting(self.running[claim.group_id])
            self._notes.append(
                f"group {claim.group_id} is to be claimed again: {claim.worker_id} fell silent"
            )
        for claim in claims.over_wall_time(now=now):
            claims.end(claim)
            self.groups.drop_running(claim.group_id, DropReason.ERROR, error="group_wall_seconds")
            self.counts.last_error = (
                f"{claim.group_id}: over group_wall_seconds={self.rules.group_wall_seconds}"
            )
        for worker_id in self.engines.silent(now=now):
            self._notes.append(f"{worker_id} fell silent: the run goes on without its engine")
            self.leave(worker_id, now=now)
        for worker_id in self.versions.expire_loads(now=now):
            self._notes.append(f"{worker_id} fell silent while it loaded weights")
        if not self._evaluation_desk.watch(now=now, ending=bool(self.ending)):
            self.ended = True
        return self.take_notes()

    def take_notes(self) -> list[str]:
        """Sentences for the run's events since the last call."""
        notes = self._notes.copy()
        self._notes.clear()
        return notes

    def stuck_seconds(self, *, now: float) -> float:
        """How long every engine has been STALE: without groups there is no batch, and no newer version to load."""
        live = self.engines.live(now=now)
        if self.ending or not live or not all(engine.stale for engine in live):
            self._all_stale_since = None
        elif self._all_stale_since is None:
            self._all_stale_since = now
        return 0.0 if self._all_stale_since is None else now - self._all_stale_since

    def collect_deletable(self) -> list[PublishedWeights]:
        return self.versions.collect_deletable()

    def admission(self) -> Admission:
        if self.ending:
            return Admission(groups=0, refusal="run_ending")
        if self.versions.newest is None:
            return Admission(groups=0, refusal="paused")
        return admit(
            self.rules.gate,
            version=self.versions.number,
            held=self.ledger.held,
            running=len(self.running),
            waiting=len(self.waiting),
        )

    def state(self, *, worker_id: str = "", now: float = 0.0) -> StateReply:
        if worker_id:
            engine = self._hear(worker_id, now=now)
            engine.told_end = engine.told_end or self.ended
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

    def everyone_knows_the_end(self, *, now: float) -> bool:
        """Every engine that could still listen was told that the run has ended."""
        told = [engine.told_end for engine in self.engines.live(now=now)]
        told += [evaluator.told_to_leave for evaluator in self.evaluations.evaluators.all()]
        return self.ended and all(told)

    @property
    def nothing_can_change(self) -> bool:
        """No group is generated, none waits to be, and the gate admits none: what is finished is all there will be."""
        return not self.running and not self.waiting and not self.admission().groups

    # --- inside -------------------------------------------------------------------------------------------

    def _hear(self, worker_id: str, *, now: float) -> Engine:
        for dead in self.engines.predecessors(worker_id):
            self._notes.append(f"{dead} is gone: {worker_id} has taken its place")
            self.leave(dead, now=now)
        self.versions.hear(worker_id, now=now)
        return self.engines.hear(worker_id, now=now)

    def _hear_evaluating(self, worker_id: str, *, now: float) -> bool:
        """A sign of life of who evaluates: True from one that is no engine of the run, and becomes none by it."""
        if self._evaluation_desk.hear_evaluator(worker_id, now=now):
            return True
        if self.engines.knows(worker_id):
            self._hear(worker_id, now=now)
        return False

    def _claim_refusal(self, engine: Engine, engine_version: int) -> Refusal | None:
        if self.ending:
            return "run_ending"
        if self.versions.newest is None:
            return "paused"
        if engine_version != self.versions.number or engine.stale:
            return "engine_behind"
        if self._evaluation_desk.is_at_it(engine.worker_id):
            return "paused"  # it is at the evaluation, and rejoins with the result
        return None

    def _next_group(self) -> tuple[GroupState | None, Refusal | None]:
        """The next group to hand out. Waiting ones are in N already: only concurrency binds them."""
        if self.waiting:
            if len(self.running) >= self.rules.gate.max_concurrent_groups:
                return None, "concurrency"
            return self.waiting.pop(0), None
        admission = self.admission()
        if admission.refusal is not None:
            return None, admission.refusal
        return self.groups.draw(max_staleness=self.rules.gate.max_staleness), None

    def _hand_out(self, held: GroupState, request: ClaimRequest, *, now: float) -> ClaimedGroup:
        claim = self.groups.hand_out(
            held, worker_id=request.worker_id, engine_version=request.engine_version, now=now
        )
        prompt = self._prompt_of(held.draw.row)
        return ClaimedGroup(
            claim_id=claim.claim_id,
            group_id=held.group_id,
            row=held.draw.row,
            prompt_token_ids=prompt.prompt_token_ids,
            prompt=prompt.prompt,
            answer=prompt.answer,
            group_size=self.rules.group_size,
            claim_version=held.claim_version,
            partial=held.partial,
        )

    def _announce_first(self, request: AnnounceRequest) -> None:
        if self.versions.newest is not None:
            self._require_version(request.version, self.versions.number, "the first announcement came before")
            return
        expected = self._restored_version or 0
        if self._restored_version is not None:
            self._require_version(
                request.version, expected, "trainer and controller must resume one checkpoint"
            )
        elif self.ledger.trained == 0 and request.version != 0:
            raise VersionConflict(
                f"the trainer starts at version {request.version} but the controller has no snapshot: give both "
                "the same resume_directory"
            )
        if request.weights is None:
            raise VersionConflict(f"version {request.version} was announced without its weights")
        self.groups.raise_bounds(self.rules.gate.max_staleness)
        self._publish(request.weights)
        if request.version == 0:
            self._evaluation_desk.request_at_start()
        self._evaluation_desk.request_if_due(last_version=self.rules.gate.total_train_steps)
        self._evaluation_desk.request_left_over(last_version=self.rules.gate.total_train_steps)

    def _publish(self, weights: PublishedWeights) -> None:
        self.versions.announce(weights)
        self.counts.versions_announced += 1

    @staticmethod
    def _require_version(given: int, expected: int, rule: str) -> None:
        if given != expected:
            raise VersionConflict(f"version {given} was given and {expected} is due: {rule}")
