"""A run in simulated time: real controller, pretended engines and trainer. Seconds are numbers on a heap.

An engine holds a few groups at once; a group's first token comes after a delay (queue, prefill), its last after
its length; in between it samples with whatever version the engine has. The trainer takes, trains, announces.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from gpu_agents.rollout.controller.config import ControllerConfig
from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.filtering import FilterConfig
from gpu_agents.rollout.controller.gate import GateConfig
from gpu_agents.rollout.controller.ledger import LedgerState
from gpu_agents.rollout.controller.prompt_order import one_source
from gpu_agents.rollout.controller.snapshot import Snapshot, decode, encode
from gpu_agents.rollout.controller.state import ControllerState
from oolong.contracts.rollout import (
    AckRequest,
    ClaimedGroup,
    ClaimRequest,
    EvaluationPrompt,
    FailRequest,
    Group,
    PartialTrajectory,
    PublishedWeights,
    PublishVersionRequest,
    ReleaseRequest,
    RenewRequest,
    SubmitRequest,
    TakeRequest,
    Trajectory,
)


def rules(
    *,
    groups_per_step: int = 4,
    max_staleness: int = 1,
    policy: str | None = None,
    max_concurrent_groups: int = 1000,
    total_train_steps: int = 10_000,
    group_size: int = 1,
    seed: int = 1,
    group_timeout_seconds: float | None = None,
    filter: FilterConfig | None = None,
) -> ControllerConfig:
    return ControllerConfig(
        gate=GateConfig(
            groups_per_step=groups_per_step,
            max_staleness=max_staleness,
            max_concurrent_groups=max_concurrent_groups,
            total_train_steps=total_train_steps,
        ),
        straggler_policy=policy or ("wait" if max_staleness <= 1 else "keep"),  # type: ignore[arg-type]
        group_size=group_size,
        seed=seed,
        group_timeout_seconds=group_timeout_seconds,
        filter=filter or FilterConfig(),
    )


def prompt_of(row: int) -> EvaluationPrompt:
    return EvaluationPrompt(index=row, prompt_token_ids=[row], prompt=str(row), answer=str(row))


def new_controller(
    rules: ControllerConfig,
    *,
    rows: int = 50,
    restored: Snapshot | None = None,
    tokens_generated_before: int = 0,
) -> Controller:
    return Controller(
        ControllerState(
            config=rules,
            prompts=one_source(range(rows)),
            prompt_of=prompt_of,
            restored=restored,
            tokens_generated_before=tokens_generated_before,
        )
    )


def weights(version: int) -> PublishedWeights:
    return PublishedWeights(version=version, directory=f"/weights/v{version:08d}", manifest_sha256="")


def announcement(version: int, outcome: str = "trained") -> PublishVersionRequest:
    return PublishVersionRequest(version=version, weights=weights(version), outcome=outcome)  # type: ignore[arg-type]


def finished_group(claimed: ClaimedGroup, versions: list[int], *, rewards: Sequence[float] = (1.0,)) -> Group:
    """Every member has one token per entry of `versions`; the rewards are repeated over the members."""

    def trajectory(reward: float) -> Trajectory:
        return Trajectory(
            token_ids=[7] * len(versions),
            loss_mask=[1] * len(versions),
            behavior_logprobs=[-0.5] * len(versions),
            policy_versions=versions,
            finish_reason="stop",
            reward=reward,
            score=reward,
        )

    return Group(
        group_id=claimed.group_id,
        row=claimed.row,
        prompt_token_ids=claimed.prompt_token_ids,
        prompt=claimed.prompt,
        answer=claimed.answer,
        trajectories=[trajectory(rewards[i % len(rewards)]) for i in range(claimed.group_size)],
    )


@dataclass
class SimulatedGroup:
    claimed: ClaimedGroup
    started: bool = False
    versions: list[int] = field(default_factory=list)
    sampled_until: float = 0.0

    def sample(self, version: int, *, now: float, tokens_per_second: float) -> None:
        """Tokens since the last call, all of one version."""
        self.versions += [version] * int(tokens_per_second * (now - self.sampled_until))
        self.sampled_until = now


@dataclass(eq=False)
class SimulatedEngine:
    worker_id: str
    places: int
    load_seconds: float
    version: int = -1
    submitted: int = 0
    groups: dict[str, SimulatedGroup] = field(default_factory=dict)


@dataclass
class World:
    controller: Controller
    rng: random.Random
    length: Callable[[random.Random], float]  # seconds of generation of one group
    engines: list[SimulatedEngine]
    train_seconds: float = 1.0
    first_token_seconds: float = 0.5  # up to
    fail_share: float = 0.0
    tokens_per_second: float = 0.0  # beside the token of each version that a group sees
    rewards: Callable[[random.Random], Sequence[float]] = lambda rng: (1.0,)
    now: float = 0.0
    trained: list[list[Group]] = field(default_factory=list)  # per step, in order
    stalenesses: list[int] = field(default_factory=list)  # of each trained trajectory
    after_announce: Callable[[World], None] = lambda world: None
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _ticket: count[int] = field(default_factory=count)
    _training: bool = False

    def run(self, steps: int, *, version: int = 0, horizon: float = 1e6) -> None:
        """Until `steps` more versions are announced. Raises AssertionError when nothing can happen any more."""
        goal = version + steps
        self._announce(version, "none")
        while self.controller.state.versions.number < goal:
            assert self._events, (
                f"deadlock at version {self.controller.state.versions.number}: {self.controller.state.status()}"
            )
            assert self.now < horizon, f"livelock at version {self.controller.state.versions.number}"
            self.now, _, event = heapq.heappop(self._events)
            event()
            self._settle()

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        """Do this `seconds` from now, unless the run has got as far as it should before."""
        self._after(seconds, event)

    def replace_engine(self, index: int, *, crashed: bool) -> None:
        """A new incarnation of an engine's job. One that crashed loses its tokens, one that stops releases its groups
        with them."""
        old = self.engines[index]
        for claim_id, group in [] if crashed else list(old.groups.items()):
            if group.started:
                group.sample(old.version, now=self.now, tokens_per_second=self.tokens_per_second)
            whole = finished_group(group.claimed, group.versions)
            members = [
                PartialTrajectory(index=i, finished=False, trajectory=t)
                for i, t in enumerate(whole.trajectories)
                if group.versions
            ]
            self.controller.workers.release(
                ReleaseRequest(worker_id=old.worker_id, claim_id=claim_id, members=members), now=self.now
            )
        old.groups.clear()
        self.controller.workers.deregister(old.worker_id)
        job, _, incarnation = old.worker_id.rpartition("/")
        new = SimulatedEngine(f"{job}/{int(incarnation) + 1}", old.places, old.load_seconds)
        self.engines[index] = new
        self._after(new.load_seconds, lambda: self._load(new))

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._ticket), event))

    def _announce(self, version: int, outcome: str = "trained") -> None:
        self.controller.trainer.announce(announcement(version, outcome))
        self._training = False
        for engine in self.engines:
            self._after(engine.load_seconds, lambda engine=engine: self._load(engine))  # type: ignore[misc]
        self.after_announce(self)
        self._settle()

    def _load(self, engine: SimulatedEngine) -> None:
        if engine not in self.engines:
            return  # its job has a new incarnation
        for group in engine.groups.values():
            if group.started:
                group.sample(engine.version, now=self.now, tokens_per_second=self.tokens_per_second)
        engine.version = self.controller.state.versions.number
        self.controller.workers.acknowledge(
            AckRequest(worker_id=engine.worker_id, version=engine.version, ok=True), now=self.now
        )
        for group in engine.groups.values():
            if group.started:
                group.versions.append(engine.version)

    def _settle(self) -> None:
        for engine in self.engines:
            reply = self.controller.workers.renew(
                RenewRequest(worker_id=engine.worker_id, claim_ids=list(engine.groups)), now=self.now
            )
            for claim_id in reply.lost:
                del engine.groups[claim_id]
            free = engine.places - len(engine.groups)
            if free and engine.version >= 0:
                request = ClaimRequest(
                    worker_id=engine.worker_id, engine_version=engine.version, max_groups=free
                )
                for claimed in self.controller.workers.claim(request, now=self.now).groups:
                    self._start(engine, claimed)
        if not self._training and self.controller.state.versions.newest is not None:
            version = self.controller.state.versions.number
            wanted = self.controller.state.config.gate.groups_per_step
            groups = self.controller.trainer.take(
                TakeRequest(version=version, groups=wanted), now=self.now
            ).groups
            if groups:
                self._train(version, groups)

    def _start(self, engine: SimulatedEngine, claimed: ClaimedGroup) -> None:
        begun = [v for member in claimed.partial for v in member.trajectory.policy_versions]
        group = engine.groups[claimed.claim_id] = SimulatedGroup(claimed, versions=begun[:1])
        delay = self.rng.random() * self.first_token_seconds

        def first_token() -> None:
            group.started = True
            group.versions.append(engine.version)
            group.sampled_until = self.now

        self._after(delay, first_token)
        self._after(delay + self.length(self.rng), lambda: self._finish(engine, group))

    def _finish(self, engine: SimulatedEngine, group: SimulatedGroup) -> None:
        claim_id = group.claimed.claim_id
        if engine.groups.pop(claim_id, None) is None:
            return  # its claim was lost before
        if self.rng.random() < self.fail_share:
            request = FailRequest(
                worker_id=engine.worker_id,
                claim_id=claim_id,
                reason="reward_error",
                message="",
                generated_tokens=1,
            )
            self.controller.workers.fail(request, now=self.now)
            return
        engine.submitted += 1
        group.sample(engine.version, now=self.now, tokens_per_second=self.tokens_per_second)
        whole = finished_group(group.claimed, group.versions, rewards=self.rewards(self.rng))
        self.controller.workers.submit(
            SubmitRequest(worker_id=engine.worker_id, claim_id=claim_id, group=whole), now=self.now
        )

    def _train(self, version: int, groups: list[Group]) -> None:
        self._training = True
        self.trained.append(groups)
        self.stalenesses += [version - min(t.policy_versions) for g in groups for t in g.trajectories]
        self._after(self.train_seconds, lambda: self._announce(version + 1))


def engines(number: int, *, places: int = 6, load_seconds: float = 0.01) -> list[SimulatedEngine]:
    return [SimulatedEngine(f"rollout-{i}/0", places, load_seconds) for i in range(number)]


def usable_places(controller: Controller) -> int:
    """Untrained groups that the gate allows besides the batch in training: those in flight and those it admits."""
    groups = controller.state.groups
    in_flight = len(groups.running) + len(groups.buffered) + len(groups.waiting)
    return controller.state.admission().groups + in_flight


def assert_ledger_is_true(controller: Controller) -> None:
    """Each counter equals the ids that are enumerated in its place, and both sums balance."""
    ledger = controller.state.ledger
    places = {
        LedgerState.WAITING: [held.group_id for held in controller.state.groups.waiting],
        LedgerState.RUNNING: list(controller.state.groups.running),
        LedgerState.BUFFERED: list(controller.state.groups.buffered),
        LedgerState.TAKEN: list(controller.state.groups.taken),
    }
    for place, ids in places.items():
        assert ledger.at(place) == len(ids), place
    everywhere = [group_id for ids in places.values() for group_id in ids]
    assert len(everywhere) == len(set(everywhere)), "a group is in two places"
    assert ledger.balances
    assert controller.state.tokens.balances
    held = [
        *controller.state.groups.waiting,
        *controller.state.groups.running.values(),
        *controller.state.groups.buffered.values(),
        *controller.state.groups.taken.values(),
    ]
    assert controller.state.tokens.in_hand == sum(group.tokens for group in held)


def through_bytes(snapshot: Snapshot) -> Snapshot:
    return decode(encode(snapshot))
