"""A discrete-event simulation of one run: admission gate, engines, replay buffer and trainer.

The rules are those of the runtime (admission: eq. 3 of arXiv 2505.24298): a group starts while it is due for a train
step at most η versions ahead, its rollouts decode in one engine's batch, a batch is the oldest finished groups, and
each published version interrupts the engines, which prefill again what they interrupted. Between two events every
engine decodes a fixed batch, so a step of the simulation costs one completion, not one token.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from statistics import mean

from oolong.planner.lengths import LengthSampler
from oolong.planner.types import Layout, Lengths, Performance, ServiceTimes

WARM_UP_STEPS = 6
MEASURED_STEPS = 10


class NoProgress(Exception):
    """The layout can never train a batch."""


@dataclass(slots=True)
class Group:
    number: int  # in claim order
    version: int  # of its first token: the oldest in it
    left: int  # rollouts that still generate
    tokens: int = 0  # of completions


@dataclass(slots=True, order=True)
class Rollout:
    ends_at: int  # tokens that its engine has decoded for each sequence when it ends
    tie: int
    group: Group = field(compare=False)
    length: int = field(compare=False)


@dataclass(slots=True)
class Engine:
    version: int = 0
    running: list[Rollout] = field(default_factory=list)  # heap by end
    decoded: int = 0  # tokens for each sequence so far
    context: int = 0  # tokens in the KV cache at `decoded`
    clock: float = 0.0  # up to which its work is accounted
    idle_seconds: float = 0.0
    paused_seconds: float = 0.0
    draining: bool = False  # finishes what runs before it loads the newest version
    schedule: int = 0  # number of its newest entry among the completions


@dataclass(slots=True, order=True)
class Completion:
    """When the next rollout of an engine ends, as long as the engine's batch stays as it is."""

    at: float
    tie: int
    engine: Engine = field(compare=False)
    schedule: int = field(compare=False)

    @property
    def is_current(self) -> bool:
        return self.engine.schedule == self.schedule


class Simulation:
    """One run of a layout. `steps()` yields after each train step."""

    def __init__(self, times: ServiceTimes, lengths: Lengths, layout: Layout, *, seed: int = 1) -> None:
        if layout.engines < 1 or layout.trainer_devices < 1:
            raise NoProgress(f"{layout.engines} engines and {layout.trainer_devices} trainer devices")
        if layout.max_running < layout.group_size:
            raise NoProgress(
                f"an engine of {layout.max_running} requests cannot hold a group of {layout.group_size}"
            )
        if layout.max_concurrent_groups is not None and layout.max_concurrent_groups < 1:
            raise NoProgress("no group may run")
        self.times, self.lengths, self.layout = times, lengths, layout
        self.now = 0.0
        self.version = 0
        self.trained_groups = 0
        self.trained_tokens = 0
        self.trainer_idle_seconds = 0.0
        self.publish_seconds = 0.0
        self.engines = [Engine() for _ in range(layout.engines)]
        self.staleness: list[int] = []  # of each trained group
        self._draw = LengthSampler(lengths, seed).draw
        self._groups_begun = 0
        self._buffer: list[tuple[int, Group]] = []  # heap by claim order
        self._in_training = 0
        self._unfinished: dict[int, Group] = {}
        self._completions: list[Completion] = []
        self._ties = count()

    def steps(self) -> Iterator[None]:
        """Train for ever; yields after each published version."""
        publish = 0.0 if self.layout.alternating else self.times.publish
        while True:
            idle_since = self.now
            while (batch := self._take_batch()) is None:
                self._run_until_completion()
            self.trainer_idle_seconds += self.now - idle_since
            tokens = sum(group.tokens for group in batch)
            prompts = len(batch) * self.layout.group_size * self.lengths.prompt
            training = self.times.train_token * (tokens + prompts) / self.layout.trainer_devices
            self._run_until(self.now + self.times.train_step + training + publish)
            self.publish_seconds += publish
            self.staleness += [self.version - group.version for group in batch]
            self.trained_tokens += tokens
            self.trained_groups += len(batch)
            self._in_training = 0
            self.version += 1
            self._interrupt()
            yield

    def synchronize(self) -> None:
        """Account the work of every engine up to now."""
        for engine in self.engines:
            self._advance(engine)

    # --- the trainer's side

    def _take_batch(self) -> list[Group] | None:
        size = self.layout.groups_per_step
        if len(self._buffer) < size or not self._may_take():
            return None
        batch = [heapq.heappop(self._buffer)[1] for _ in range(size)]
        self._in_training = size
        return batch

    def _may_take(self) -> bool:
        """With `wait`: the groups left untrained with a deadline before i + k number at most (k - 1) · B, for all k."""
        if self.layout.on_straggler == "keep":
            return True
        size, bound = self.layout.groups_per_step, self.layout.max_staleness
        left = [group for _, group in heapq.nsmallest(len(self._buffer), self._buffer)[size:]]
        left += self._unfinished.values()
        due = sorted(group.version + bound for group in left)
        return all(index + 1 <= max(0, deadline - self.version) * size for index, deadline in enumerate(due))

    # --- the rollouts' side

    def _run_until_completion(self) -> None:
        self._admit()
        if not self._completions:
            raise NoProgress("no group is running, none may start, and too few are finished for a batch")
        self._complete_next()

    def _run_until(self, end: float) -> None:
        self._admit()
        while self._completions and self._completions[0].at <= end:
            self._complete_next()
            self._admit()
        self.now = end

    def _complete_next(self) -> None:
        """Advance the engine whose rollout ends first to that end. An entry that the engine has outlived is skipped."""
        entry = heapq.heappop(self._completions)
        if entry.is_current:
            self.now = max(self.now, entry.at)
            self._advance(entry.engine, to=entry.at)

    def _advance(self, engine: Engine, *, to: float | None = None) -> None:
        """Account the engine's work up to `to` (now): whole decode steps, and the rollouts that end."""
        until = self.now if to is None else to
        while engine.running and (end := self._next_end(engine)) <= until:
            self._decode(engine, engine.running[0].ends_at - engine.decoded, end)
            while engine.running and engine.running[0].ends_at == engine.decoded:
                self._finish(engine, heapq.heappop(engine.running))
        if engine.running:
            tokens = min(
                self._tokens_in(engine, until - engine.clock), engine.running[0].ends_at - engine.decoded - 1
            )
            if tokens > 0:
                self._decode(engine, tokens, engine.clock + self._decode_seconds(engine, tokens))
        elif engine.clock < until:
            engine.idle_seconds += until - engine.clock
            engine.clock = until
        self._schedule(engine)

    def _schedule(self, engine: Engine) -> None:
        engine.schedule += 1
        if engine.running:
            heapq.heappush(
                self._completions,
                Completion(self._next_end(engine), next(self._ties), engine, engine.schedule),
            )

    def _next_end(self, engine: Engine) -> float:
        return engine.clock + self._decode_seconds(engine, engine.running[0].ends_at - engine.decoded)

    def _decode_seconds(self, engine: Engine, tokens: int) -> float:
        """`tokens` decode steps of the whole batch, whose context grows by a token a sequence and step."""
        times, batch = self.times, len(engine.running)
        context = engine.context * tokens + batch * tokens * (tokens - 1) / 2
        return tokens * (times.decode_step + times.decode_sequence * batch) + times.decode_context * context

    def _tokens_in(self, engine: Engine, seconds: float) -> int:
        """Whole decode steps that fit into `seconds`: the root of the quadratic `_decode_seconds`."""
        if seconds <= 0:
            return 0
        times, batch = self.times, len(engine.running)
        square = times.decode_context * batch / 2
        linear = (
            times.decode_step + times.decode_sequence * batch + times.decode_context * engine.context - square
        )
        if square == 0:
            return int(seconds / linear)
        return int((math.sqrt(linear * linear + 4 * square * seconds) - linear) / (2 * square))

    def _decode(self, engine: Engine, tokens: int, until: float) -> None:
        engine.decoded += tokens
        engine.context += tokens * len(engine.running)
        engine.clock = until

    def _finish(self, engine: Engine, rollout: Rollout) -> None:
        engine.context -= self.lengths.prompt + rollout.length
        group = rollout.group
        group.left -= 1
        group.tokens += rollout.length
        if group.left == 0:
            del self._unfinished[group.number]
            heapq.heappush(self._buffer, (group.number, group))
        if engine.draining and not engine.running:
            self._load(engine)

    def _admit(self) -> None:
        """Start groups while the gate admits one and an engine of the current version has room for it."""
        layout = self.layout
        while True:
            in_system = self.trained_groups + self._in_training + len(self._buffer) + len(self._unfinished)
            if in_system >= (self.version + layout.max_staleness + 1) * layout.groups_per_step:
                return
            if (
                layout.max_concurrent_groups is not None
                and len(self._unfinished) >= layout.max_concurrent_groups
            ):
                return
            open_engines = [
                engine for engine in self.engines
                if not engine.draining and len(engine.running) + layout.group_size <= layout.max_running
            ]  # fmt: skip
            if not open_engines:
                return
            self._start_group(min(open_engines, key=lambda engine: len(engine.running)))

    def _start_group(self, engine: Engine) -> None:
        group = Group(self._groups_begun, engine.version, self.layout.group_size)
        self._groups_begun += 1
        self._unfinished[group.number] = group
        self._advance(engine)
        for _ in range(self.layout.group_size):
            length = self._draw()
            heapq.heappush(engine.running, Rollout(engine.decoded + length, next(self._ties), group, length))
        prompts = self.layout.group_size * self.lengths.prompt
        engine.context += prompts
        engine.clock += self.times.prefill_token * prompts
        self._schedule(engine)

    def _interrupt(self) -> None:
        """Every engine loads the published weights: at once, or when what runs is finished."""
        for engine in self.engines:
            self._advance(engine)
            if self.layout.interruptible or not engine.running:
                self._load(engine)
                self._schedule(engine)
            else:
                engine.draining = True

    def _load(self, engine: Engine) -> None:
        load = 0.0 if self.layout.alternating else self.times.load
        seconds = load + self.times.prefill_token * engine.context
        engine.clock = max(engine.clock, self.now) + seconds
        engine.paused_seconds += seconds
        engine.version, engine.draining = self.version, False


def simulate(
    times: ServiceTimes, lengths: Lengths, layout: Layout, *, seed: int = 1,
    warm_up: int = WARM_UP_STEPS, measured: int = MEASURED_STEPS,
) -> Performance:  # fmt: skip
    """Simulate `warm_up` and then `measured` train steps. Raises NoProgress for a layout that cannot train."""
    simulation = Simulation(times, lengths, layout, seed=seed)
    steps = simulation.steps()
    for _ in range(warm_up):
        next(steps)
    began = _Totals.of(simulation)
    for _ in range(measured):
        next(steps)
    return began.performance_until(_Totals.of(simulation), simulation, measured)


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums of a simulation so far."""

    seconds: float
    tokens: int
    trainer_idle: float
    publish: float
    engines_idle: float  # mean over the engines
    engines_paused: float
    groups: int

    @classmethod
    def of(cls, simulation: Simulation) -> _Totals:
        simulation.synchronize()
        return cls(
            seconds=simulation.now,
            tokens=simulation.trained_tokens,
            trainer_idle=simulation.trainer_idle_seconds,
            publish=simulation.publish_seconds,
            engines_idle=mean(engine.idle_seconds for engine in simulation.engines),
            engines_paused=mean(engine.paused_seconds for engine in simulation.engines),
            groups=len(simulation.staleness),
        )

    def performance_until(self, end: _Totals, simulation: Simulation, steps: int) -> Performance:
        seconds = end.seconds - self.seconds
        staleness = sorted(simulation.staleness[self.groups : end.groups])
        return Performance(
            step_seconds=seconds / steps,
            trained_tokens_per_second=(end.tokens - self.tokens) / seconds,
            trainer_idle_frac=(end.trainer_idle - self.trainer_idle) / seconds,
            rollout_idle_frac=(end.engines_idle - self.engines_idle) / seconds,
            publish_frac=(end.publish - self.publish) / seconds,
            paused_frac=(end.engines_paused - self.engines_paused) / seconds,
            staleness_mean=mean(staleness),
            staleness_p95=staleness[math.ceil(0.95 * len(staleness)) - 1],
            staleness_max=staleness[-1],
        )
