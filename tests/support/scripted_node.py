"""A node without jobs: it enrolls, takes attempts and ships SYNTHETIC telemetry through the real agent API.

For looking at pages and for tests of pages, where a real run would take minutes. Nothing it ships was measured;
its runs say so in their notes. It speaks the agent's own protocol, so everything from the ingest on is real.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import random
import re
import tarfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from oolong.contracts.agent import (
    HeartbeatRequest,
    Inventory,
    ObservedJob,
    OutboxOffset,
    SlotInventory,
    TelemetryBatchReply,
)
from oolong.contracts.lifecycle import EndReason, JobState
from oolong.contracts.telemetry import (
    ENVIRONMENT,
    AnyLine,
    CheckpointLine,
    Histogram,
    Note,
    Points,
    Progress,
    StateSnapshot,
    Summary,
    TrajectoryLine,
)
from tests.support.telemetry_batch import single_chunk

GROUP_SIZE = 8
FILE = "main-0.jsonl"
CHECKPOINT_EVERY = 20
LOG_FILE = "output.log#0"
REWARD_ERROR = """\
WARNING synthetic: a completion got no score
Traceback (most recent call last):
  File "reward.py", line 12, in score
    return float(parse(completion)["answer"])
KeyError: 'answer'
INFO synthetic: the group is dropped, and never scored 0
"""
RAW = {"Content-Type": "application/octet-stream"}
ASK_AGAIN = (408, 425, 429)  # besides 5xx, as the real agent


class _Closed(Exception):
    """The node is being closed: its threads end wherever they are."""


class _Unwanted(Exception):
    """The attempt has ended or went on elsewhere: whatever it still had to say is refused."""


@dataclass
class _Job:
    job_id: str
    attempt_id: str
    epoch: int
    name: str
    state: JobState = JobState.RUNNING
    reason: EndReason | None = None
    outbox_bytes: int = 0
    log_bytes: int = 0


@dataclass
class ScriptedNode:
    """Drives every attempt that is placed on it: one train step per `step_seconds`.

    What goes wrong in one of its threads is raised by `check` and `close`.
    """

    server: str
    join_token: str
    slots: int = 3
    name: str = "scripted-node"
    step_seconds: float = 0.5
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=256))
    _work: list[Future[None]] = field(default_factory=list)  # the heartbeat, and one for each attempt
    _stopping: set[str] = field(default_factory=set)  # attempts that were asked to stop
    _wanted: set[str] = field(default_factory=set)  # attempts that the newest answer names
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _goes_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._goes_on.set()

    def start(self) -> None:
        self._client = httpx.Client(base_url=f"{self.server}/api/v1/agent", timeout=60, trust_env=False)
        body = {"name": self.name, "inventory": msgspec.to_builtins(self._inventory())}
        reply = self._client.post(
            "/enroll", json=body, headers={"Authorization": f"Bearer {self.join_token}"}
        )
        reply.raise_for_status()
        self._client.headers["Authorization"] = f"Bearer {reply.json()['credential']}"
        self._spawn(self._beat)

    def hold(self) -> None:
        """No attempt begins a step any more, until `go_on`: what runs stays running for as long as a test needs."""
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def check(self) -> None:
        """Raise what went wrong in a thread, if anything did."""
        failures = [failure for done in self._work if done.done() and (failure := done.exception())]
        if failures:
            raise AssertionError(f"{len(failures)} threads of {self.name} failed") from failures[0]

    def close(self) -> None:
        self._stop.set()
        while not all(work.done() for work in self._work):  # the heartbeat may be about to begin another
            wait(list(self._work))
        self._threads.shutdown()
        self._client.close()
        self.check()

    def _call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """At least once, as the real agent: a lost control plane or a lost answer is asked again."""
        while not self._stop.is_set():
            try:
                reply = self._client.request(method, path, **arguments)
            except httpx.TransportError:
                self._stop.wait(0.3)
                continue
            if reply.is_success:
                return reply
            if reply.status_code < 500 and reply.status_code not in ASK_AGAIN:
                if reply.json()["code"] == "node_revoked":
                    raise _Closed
                if reply.json()["code"] == "stale_epoch":
                    raise _Unwanted
                raise AssertionError(f"{method} {path}: {reply.status_code} {reply.text}")
            self._stop.wait(0.3)
        raise _Closed

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> None:
        self._work.append(self._threads.submit(self._until_closed, target, *arguments))

    def _until_closed(self, target: Callable[..., None], *arguments: Any) -> None:
        try:
            target(*arguments)
        except _Closed:
            return

    def _inventory(self) -> Inventory:
        slots = [
            SlotInventory(
                slot=f"cpu-{n}",
                device="cpu",
                model="scripted CPU slot",
                memory_bytes=4 * 2**30,
                utilization=0.9 if n % 2 == 0 else 0.6,
                memory_used_bytes=(n % 3 + 1) * 2**29,
            )
            for n in range(self.slots)
        ]
        return Inventory(
            hostname=self.name, agent_version="scripted", boot_id="scripted", cpu_count=2,
            memory_bytes=8 * 2**30, disk_free_bytes=50 * 2**30, slots=slots,
        )  # fmt: skip

    # --- the agent's loop -----------------------------------------------------------------------------------

    def _beat(self) -> None:
        started = time.time()
        while not self._stop.is_set():
            with self._lock:
                observed = [_observed(job) for job in self._jobs.values()]
            request = HeartbeatRequest(inventory=self._inventory(), jobs=observed, started_at=started)
            desired = self._call("POST", "/heartbeat", json=msgspec.to_builtins(request)).json()
            self._wanted = {attempt["attempt_id"] for attempt in desired["attempts"]}
            for attempt in desired["attempts"]:
                self._take(attempt)
            self._forget(desired["acknowledged"])
            self._stop.wait(0.5)

    def _take(self, attempt: dict[str, Any]) -> None:
        with self._lock:
            if any(job["stop"] for job in attempt["jobs"]):
                self._stopping.add(attempt["attempt_id"])
            fresh = [job for job in attempt["jobs"] if job["job_id"] not in self._jobs and not job["stop"]]
            for job in fresh:
                self._jobs[job["job_id"]] = _Job(
                    job["job_id"], attempt["attempt_id"], attempt["epoch"], job["name"]
                )
            mine = {self._jobs[job["job_id"]].name: self._jobs[job["job_id"]] for job in fresh}
        if mine:
            self._spawn(self._play, attempt, mine)

    def _forget(self, acknowledged: list[str]) -> None:
        """Only jobs that nobody wants any more: one that is still named and was forgotten would start over."""
        with self._lock:
            for job_id in acknowledged:
                job = self._jobs.get(job_id)
                if job is not None and job.attempt_id not in self._wanted:
                    del self._jobs[job_id]

    def _write(self, job: _Job, *lines: AnyLine) -> None:
        now = time.time()
        stamped = [msgspec.structs.replace(line, at=line.at or now) for line in lines]
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in stamped)
        self._ship(job, FILE, data, offset=job.outbox_bytes)
        job.outbox_bytes += len(data)

    def _log(self, job: _Job, text: str) -> None:
        data = text.encode()
        self._ship(job, LOG_FILE, data, offset=job.log_bytes)
        job.log_bytes += len(data)

    def _ship(self, job: _Job, file: str, data: bytes, *, offset: int) -> None:
        """At least once, as the real agent."""
        body = single_chunk(job.job_id, file, data, offset=offset)
        while True:
            response = self._call("POST", "/telemetry", content=body, headers=RAW)
            [reply] = msgspec.json.decode(response.content, type=TelemetryBatchReply).chunks
            if reply.status == 200:
                return
            if reply.status < 500:
                raise AssertionError(f"{file} of job {job.job_id} from byte {offset}: {reply}")
            if self._stop.wait(0.3):
                raise _Closed

    def _checkpoint(self, job: _Job, step: int, *, final: bool) -> None:
        """A committed checkpoint that holds nothing but its manifest, announced and uploaded."""
        manifest = json.dumps({"step": step, "files": [], "scripted": job.attempt_id}).encode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo("MANIFEST.json")
            entry.size = len(manifest)
            archive.addfile(entry, io.BytesIO(manifest))
        data = packed.getvalue()
        sha256 = hashlib.sha256(manifest).hexdigest()
        line = CheckpointLine(
            step=step,
            directory=f"/nowhere/step-{step:08d}",
            manifest_sha256=sha256,
            bytes=len(data),
            final=final,
        )
        self._write(job, line)
        body = {
            "step": step, "manifest_sha256": sha256, "tar_sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data), "epoch": job.epoch, "final": final,
        }  # fmt: skip
        announced = self._call("POST", f"/attempts/{job.attempt_id}/checkpoints", json=body).json()
        if announced["stored"]:  # it is there: only the answer was lost
            return
        upload_id = announced["upload_id"]
        headers = {
            "X-Part-SHA256": hashlib.sha256(data).hexdigest(),
            "Content-Type": "application/octet-stream",
        }
        self._call("PUT", f"/uploads/{upload_id}/parts/0", content=data, headers=headers)
        self._call("POST", f"/uploads/{upload_id}/complete")

    # --- one attempt ----------------------------------------------------------------------------------------

    def _play(self, attempt: dict[str, Any], jobs: dict[str, _Job]) -> None:
        try:
            reason = self._train(attempt, jobs)
        except _Unwanted:
            reason = EndReason.STOPPED_BY_USER
        with self._lock:
            for job in jobs.values():
                job.reason = reason
                job.state = JobState.EXITED

    def _train(self, attempt: dict[str, Any], jobs: dict[str, _Job]) -> EndReason:
        run = _SyntheticRun(attempt["spec"], seed=attempt["run_id"])
        reason = EndReason.COMPLETED
        for name, job in jobs.items():
            self._log(job, f"{name}: scripted node, nothing here is measured\n")
        began = time.time()
        step = 0
        for step in range(1, run.steps + 1):
            if not self._may_step(attempt["attempt_id"]):
                reason = EndReason.STOPPED_BY_USER
                break
            seconds = int(time.time() - began)
            for name, lines in run.step(step, seconds).items():
                if name in jobs:
                    self._write(jobs[name], *lines)
            if "trainer" in jobs:
                self._log(jobs["trainer"], f"step {step} reward {run.reward:.3f} loss {run.loss:+.4f}\n")
            if step == 5 and "reward" in jobs:
                self._log(jobs["reward"], REWARD_ERROR)
            if step % CHECKPOINT_EVERY == 0 and "trainer" in jobs:
                self._checkpoint(jobs["trainer"], step, final=False)
        if "trainer" in jobs:
            self._checkpoint(jobs["trainer"], step, final=True)
        for name, lines in run.end().items():
            if name in jobs:
                self._write(jobs[name], *lines)
        return reason

    def _may_step(self, attempt_id: str) -> bool:
        """Wait for the time of the next step; False when the attempt was asked to stop."""
        self._stop.wait(self.step_seconds)
        while True:
            if self._stop.is_set():
                raise _Closed
            if attempt_id in self._stopping:
                return False
            if attempt_id not in self._wanted:
                raise _Unwanted
            if self._goes_on.wait(0.05):
                return True


def _observed(job: _Job) -> ObservedJob:
    ended = job.state is JobState.EXITED
    offsets = [
        OutboxOffset(file=FILE, bytes=job.outbox_bytes, shipped=job.outbox_bytes),
        OutboxOffset(file=LOG_FILE, bytes=job.log_bytes, shipped=job.log_bytes),
    ]
    return ObservedJob(
        job_id=job.job_id, attempt_id=job.attempt_id, epoch=job.epoch, state=job.state, pid=4242,
        exit_code=0 if ended else None, reason=job.reason, outbox=offsets if ended else [],
    )  # fmt: skip


class _SyntheticRun:
    """Curves of plausible shape, from a seed: enough for every panel of the run page to have something to show."""

    def __init__(self, spec: dict[str, Any], *, seed: str) -> None:
        self.random = random.Random(int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16))
        self.is_rl = spec["kind"] == "rl"
        self.steps = int(spec["trainer"]["total_train_steps"] if self.is_rl else spec["sft"]["steps"])
        self.batch = int(spec["trainer"]["groups_per_step"])
        self.bound = int(spec["staleness"]["max"])
        self.reward = 0.5
        self.loss = 0.0
        self.histogram: dict[str, int] = {}

    def step(self, step: int, seconds: int) -> dict[str, list[AnyLine]]:
        return self._rl_step(step, seconds) if self.is_rl else self._sft_step(step)

    def _noise(self, size: float) -> float:
        return self.random.gauss(0.0, size)

    def _sft_step(self, step: int) -> dict[str, list[AnyLine]]:
        self.loss = 0.35 + 2.4 * math.exp(-step / (self.steps / 6)) + abs(self._noise(0.05))
        values = {"sft/loss": self.loss, "sft/learning_rate": 5e-3 * (1 - 0.9 * step / self.steps)}
        if step % max(1, self.steps // 10) == 0:
            values["sft/greedy_accuracy"] = min(0.97, 1.05 * (1 - math.exp(-2.6 * step / self.steps)))
        progress = Progress(phase="warm_start", done=step, total=self.steps, message="synthetic")
        return {"trainer": [Points(axis="step", x=step, values=values), progress]}

    def _rl_step(self, step: int, seconds: int) -> dict[str, list[AnyLine]]:
        self.reward = 0.52 + 0.4 * (1 - math.exp(-step / 22)) + self._noise(0.018)
        self.loss = self._noise(0.004) - 0.002
        lags = self._lags()
        mean = sum(int(lag) * count for lag, count in lags.items()) / max(1, sum(lags.values()))
        highest = max(int(lag) for lag in lags)
        for lag, count in lags.items():
            self.histogram[lag] = self.histogram.get(lag, 0) + count
        wait = abs(0.35 + self._noise(0.15))
        train = 1.1 + abs(self._noise(0.1))
        values = {
            "reward/mean": self.reward,
            "reward/std": 0.4,
            "group/zero_variance_frac": min(0.9, max(0.0, 0.1 + 0.5 * step / self.steps + self._noise(0.03))),
            "group/all_correct_frac": min(0.9, max(0.0, 0.08 + 0.5 * step / self.steps + self._noise(0.03))),
            "group/none_correct_frac": max(0.0, 0.05 - 0.04 * step / self.steps + self._noise(0.01)),
            "response_length/mean": 36 + self._noise(1.2),
            "response_length/max": 96 + self.random.randrange(16),
            "loss/policy": self.loss,
            "policy/entropy": 0.12 * math.exp(-step / 50) + 0.03 + abs(self._noise(0.002)),
            "policy/clip_low_frac": abs(self._noise(0.004)),
            "policy/clip_high_frac": abs(self._noise(0.006)),
            "policy/version": float(step),
            "importance_ratio/abs_log_mean": 0.02 + 0.01 * mean + abs(self._noise(0.002)),
            "importance_ratio/masked_frac": abs(self._noise(0.0004)),
            "mismatch/logprob_abs_mean": 2e-7 * (1 + abs(self._noise(0.4))),
            "mismatch/logprob_abs_max": 9e-7 * (1 + abs(self._noise(0.6))),
            "optim/grad_norm": 0.28 + abs(self._noise(0.07)),
            "staleness/mean": mean,
            "staleness/max": float(highest),
            "staleness/p95": float(min(highest, 3)),
            "staleness/version_span_mean": 1.6 + self._noise(0.1),
            "staleness/version_span_max": float(3 + self.random.randrange(2)),
            "perf/trained_tokens": 9200.0,
            "perf/trained_tokens_per_second": 9200 / (wait + train),
            "idle/trainer_frac": wait / (wait + train),
            "time/step_seconds": wait + train,
            "time/wait_batch_seconds": wait,
            "time/train_seconds": train,
            "time/publish_seconds": 0.03 + abs(self._noise(0.004)),
            "time/gather_seconds": 0.008,
            "time/write_seconds": 0.02,
        }
        by_clock = {
            "buffer/groups": float(self.random.randrange(self.batch)),
            "gate/running_groups": 40 + self._noise(6),
            "gate/admissible_groups": float(self.random.randrange(24)),
        }
        engine = {
            "engine/version": float(max(0, step - self.random.randrange(2))),
            "perf/generated_tokens_per_second": 5400 + self._noise(300),
            "idle/rollout_frac": min(1.0, abs(self._noise(0.06))),
            "weight_sync/load_seconds": 0.02 + abs(self._noise(0.004)),
            "weight_sync/paused_seconds": 0.05 + abs(self._noise(0.01)),
            "weight_sync/delay_seconds": 0.12 + abs(self._noise(0.03)),
            "weight_sync/engine_paused_frac": 0.02,
        }
        controller: list[AnyLine] = [
            Points(axis="time", x=seconds, values=by_clock),
            Histogram(name="staleness/consumed_trajectories", x=step, counts=lags),
            StateSnapshot(name="pipeline", value=self._pipeline(step)),
            *self._trajectories(step),
        ]
        if step == 3:
            controller.append(Note(kind="engine_restarted", message="rollout-0: synthetic note"))
        progress = Progress(phase="train", done=step, total=self.steps, message=f"reward {self.reward:.3f}")
        return {
            "trainer": [Points(axis="step", x=step, values=values), progress],
            "controller": controller,
            "rollout-0": [Points(axis="time", x=seconds, values=engine, source="engine")],
        }

    def _lags(self) -> dict[str, int]:
        shares = [0.06, 0.27, 0.33, 0.2, 0.1, 0.03, 0.01]
        drawn = self.random.choices(range(len(shares)), weights=shares, k=self.batch * GROUP_SIZE)
        lags = [min(lag, self.bound + 2) for lag in drawn]
        return {str(lag): lags.count(lag) for lag in sorted(set(lags))}

    def _pipeline(self, step: int) -> dict[str, Any]:
        trained, dropped = step * self.batch, step // 3
        running, buffered, waiting = 36 + step % 9, self.random.randrange(self.batch), step % 2
        drawn = trained + dropped + running + buffered + waiting + self.batch
        tokens = {
            "trained": trained * 290,
            "dropped": {"error": dropped * 200},
            "in_hand": (running + buffered) * 250,
        }
        generated = tokens["trained"] + dropped * 200 + tokens["in_hand"]  # type: ignore[operator]
        closed = step % 3 == 0
        return {
            "gate": {"admissible": 0 if closed else 12, "refusal": "staleness" if closed else None, "version": step},
            "ledger": {
                "drawn": drawn, "trained": trained, "dropped": {"error": dropped}, "waiting": waiting,
                "running": running, "buffered": buffered, "taken": self.batch,
            },
            "tokens": {"generated": generated, "lost_to_recovery": 0, **tokens},
        }  # fmt: skip

    def _trajectories(self, step: int) -> list[TrajectoryLine]:
        """A whole group, and the extremes of the step from another one, as the controller samples them."""
        whole = self._group(step, step * self.batch)
        other = self._group(step, step * self.batch + 1)
        lowest, widest = min(other, key=lambda line: line.reward), other[step % GROUP_SIZE]
        reasons: dict[int, list[str]] = {lowest.member: ["lowest_reward"]}
        reasons.setdefault(widest.member, []).append("widest_span")
        return [
            *(msgspec.structs.replace(line, sample_reasons=["group"]) for line in whole),
            *(msgspec.structs.replace(other[member], sample_reasons=why) for member, why in reasons.items()),
        ]

    def _group(self, step: int, row: int) -> list[TrajectoryLine]:
        digits = [self.random.randrange(1, 10) for _ in range(5)]
        return [self._trajectory(step, row, member, digits) for member in range(GROUP_SIZE)]

    def _trajectory(self, step: int, row: int, member: int, digits: list[int]) -> TrajectoryLine:
        """Every fourth row has two turns with a tool between them."""
        sums = [sum(digits[: n + 1]) for n in range(len(digits))]
        words = [f"{letter}{digit}" for letter, digit in zip("abcde", digits, strict=True)]
        parts = [f"{word}={total} " for word, total in zip(words, sums, strict=True)]
        right = self.random.random() < self.reward
        box = f"\\boxed{{{sums[-1] + (0 if right else 2)}}}<|end|>"
        tool = row % 4 == 0
        oldest = max(0, step - 4)
        spans = [
            (oldest, "".join(parts[:3])),
            *([(oldest, "<tool>sum</tool>"), (ENVIRONMENT, f"\n{sums[2]} ✓\n")] if tool else []),
            (oldest + (step + member) % 3, "".join(parts[3:]) + box),
        ]
        tokens = [
            (version, token) for version, text in spans for token in re.findall(r"<[^>]*>|\w|.|\n", text)
        ]
        pairs = [
            (version, len([*same])) for version, same in itertools.groupby(tokens, key=lambda one: one[0])
        ]
        logprobs = [
            0.0 if version == ENVIRONMENT else -(self.random.expovariate(2.5) ** 2) for version, _ in tokens
        ]
        advantage = round((float(right) - self.reward) / 0.5, 3)
        trained = [version != ENVIRONMENT for version, _ in tokens]
        return TrajectoryLine(
            step=step, group_id=f"0-{row}-0", prompt=f"Add up: {' '.join(words)}", answer=str(sums[-1]),
            completion="".join(token for _, token in tokens), reward=float(right),
            policy_versions=[number for pair in pairs for number in pair],
            finish_reason="stop" if member < GROUP_SIZE - 1 else "length",
            reward_parts={"correct": float(right), "format": 1.0}, reward_result="exact" if right else "wrong_answer",
            row=row, member=member, score=float(right),
            token_ids=[sum(map(ord, token)) for _, token in tokens],
            logprobs=logprobs,
            trainer_logprobs=[
                value + self.random.gauss(0, 0.2) if is_trained else None
                for value, is_trained in zip(logprobs, trained, strict=True)
            ],
            advantages=[advantage if is_trained else None for is_trained in trained],
            token_chars=[len(token) for _, token in tokens],
            timeline={
                "generate_seconds": 1.5, "reward_seconds": 0.01, "interruptions": float(len(pairs) - 1),
                "turns": 2.0 if tool else 1.0, "tool_calls": float(tool),
            },
        )  # fmt: skip

    def end(self) -> dict[str, list[AnyLine]]:
        if not self.is_rl:
            return {
                "trainer": [
                    Summary(name="sft", value={"steps": self.steps, "greedy_accuracy": 0.95, "seed": 1})
                ]
            }
        scores = {"start": (0, 0.93, 0.52), "end": (self.steps, 0.97, 0.9)}
        evaluation = {
            label: {
                "version": version,
                "prompts": 256,
                "greedy": greedy,
                "sampled": sampled,
                "mean_tokens": 35.2,
            }
            for label, (version, greedy, sampled) in scores.items()
        }
        closing = {
            "staleness": {"max_configured": self.bound, "histogram": self.histogram},
            "interruptions": 411,
        }
        return {
            "controller": [
                Summary(name="controller", value=closing),
                Summary(name="evaluation", value=evaluation),
            ],
            "trainer": [
                Summary(name="trainer", value={"train_steps": self.steps, "idle": {"trainer": 0.24}})
            ],
        }
