"""The reward service: POST /score scores one completion; POST /execute runs code in the sandbox.

An error is never a score of 0. Failures of the verifier or the sandbox are retried, then counted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from gpu_agents.model_text import run_off_loop
from gpu_agents.rewards import execute
from gpu_agents.rewards.budget import ErrorBudget
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.reward import (
    Completion,
    Reward,
    SandboxFailed,
    Score,
    Scorer,
    ScoringError,
    VerifierFailed,
    as_score,
)
from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.contracts.rollout import ExecuteReply, ExecuteRequest, ScoreReply, ScoreRequest
from oolong.sandbox import SandboxUnsupported
from oolong.system.rpc import RpcError, RpcServer
from oolong.untrusted import clean_text

log = logging.getLogger(__name__)

LOGGED_ERRORS = 20
ATTEMPTS = {VerifierFailed: 2, SandboxFailed: 3}  # in all
PAUSE_SECONDS = 0.2
KEPT_LATENCIES = 4096
KEPT_PARTS = 64


@dataclass(kw_only=True)
class PartCount:
    """Sum of the unweighted scores of one part of a reward."""

    scored: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.scored


@dataclass(kw_only=True)
class ScoreCounts:
    """Counts of scored completions, failures and reattempts."""

    scored: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # verifier_error, sandbox_error
    retried: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    parts: dict[str, PartCount] = field(default_factory=dict)  # by label
    forgeable: int = 0
    executed: int = 0
    seconds: float = 0.0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LATENCIES))  # newest last

    def note_part(self, label: str, value: float) -> None:
        if label not in self.parts and len(self.parts) == KEPT_PARTS:
            return  # a function may generate a new label for each completion
        part = self.parts.setdefault(label, PartCount())
        part.scored += 1
        part.total += value


class InThisProcess:
    """Runs a built-in function that cannot hang, in this process."""

    def __init__(self, reward: Reward) -> None:
        self._reward = reward

    async def start(self) -> None:
        pass

    async def score(self, completion: Completion) -> Score:
        try:
            return await run_off_loop(completion.text, lambda: as_score(self._reward(completion)))
        except ScoringError:
            raise
        except Exception as error:
            raise VerifierFailed(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        pass


class RewardService:
    """Serves one reward function and, if available, the sandbox."""

    def __init__(
        self,
        scorer: Scorer,
        *,
        token: str,
        sandboxes: Sandboxes | None = None,
        budget: ErrorBudget | None = None,
        remote: RemoteCounts | None = None,
    ) -> None:
        self._scorer = scorer
        self._sandboxes = sandboxes
        self.remote = remote or RemoteCounts()
        self.budget = budget or ErrorBudget(1.0)
        self.over_budget = asyncio.Event()
        self.counts = ScoreCounts()
        self.rpc = RpcServer(token)
        self.rpc.method("score", ScoreRequest, self._score)
        self.rpc.method("execute", ExecuteRequest, self._execute)

    async def _score(self, request: ScoreRequest) -> ScoreReply:
        started = time.monotonic()
        completion = Completion(
            prompt=request.prompt,
            text=request.completion,
            answer=request.answer,
            finish_reason=request.finish_reason,
            row=request.row,
            purpose=request.purpose,
        )
        try:
            score = await self._score_with_reattempts(completion)
        except SandboxFailed as error:
            return self._error("sandbox_error", str(error), started)
        except (VerifierFailed, ScoringError) as error:
            return self._error("verifier_error", str(error), started)
        seconds = time.monotonic() - started
        self.counts.scored += 1
        self.counts.forgeable += score.forgeable
        self.counts.seconds += seconds
        self.counts.latencies.append(seconds)
        if score.result:
            self.counts.results[score.result] += 1
        for label, value in score.parts.items():
            self.counts.note_part(label, value)
        self.budget.note(error=False, now=time.monotonic())
        return ScoreReply(
            status="ok",
            score=score.value,
            parts=score.parts,
            result=score.result,
            forgeable=score.forgeable,
            text=score.text,
            seconds=seconds,
        )

    async def _score_with_reattempts(self, completion: Completion) -> Score:
        """Score the completion with reattempts. Raises ScoringError, VerifierFailed, SandboxFailed."""
        attempts = 0
        while True:
            attempts += 1
            try:
                score = await self._scorer.score(completion)
                if not math.isfinite(score.value):
                    raise ScoringError(f"the score is {score.value}")
                return score
            except ScoringError:
                raise
            except Exception as error:
                kind = SandboxFailed if isinstance(error, SandboxFailed) else VerifierFailed
                if attempts >= ATTEMPTS[kind]:
                    if isinstance(error, kind):
                        raise
                    log.exception("a built-in reward function failed")
                    raise VerifierFailed(f"{type(error).__name__}: {error}") from error
                self.counts.retried[kind.__name__] += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _execute(self, request: ExecuteRequest) -> ExecuteReply:
        if len(request.code.encode()) > execute.MAX_CODE_BYTES:
            raise RpcError(413, "too_large", f"the code exceeds {execute.MAX_CODE_BYTES} bytes")
        if self._sandboxes is None:
            raise RpcError(409, "no_sandbox", "this reward service has no sandbox")
        try:
            execute.limits_of(request)
        except ValueError as error:
            raise RpcError(400, "malformed", str(error)) from error
        attempts = 0
        while True:
            attempts += 1
            try:
                reply = await execute.execute(self._sandboxes, request)
            except SandboxUnsupported as refused:
                raise RpcError(409, "no_sandbox", str(refused)) from refused
            except SandboxFailed as error:
                if attempts >= ATTEMPTS[SandboxFailed]:
                    self.counts.failed["sandbox_error"] += 1
                    self._note_error(f"sandbox_error: {error}")
                    raise RpcError(503, "sandbox_error", str(error)) from error
                self.counts.retried[SandboxFailed.__name__] += 1
            else:
                self.counts.executed += 1
                return reply
            await asyncio.sleep(PAUSE_SECONDS)

    def _error(self, kind: str, message: str, started: float) -> ScoreReply:
        message = clean_text(message)  # it may contain text of user code or the policy
        self.counts.failed[kind] += 1
        if self.counts.failed.total() <= LOGGED_ERRORS:
            log.warning("no score (%s): %s", kind, message)
        self._note_error(f"{kind}: {message}")
        return ScoreReply(status="error", kind=kind, message=message, seconds=time.monotonic() - started)

    def _note_error(self, message: str) -> None:
        self.budget.note(error=True, now=time.monotonic(), message=message)
        if self.budget.exceeded:
            self.over_budget.set()

    def log_parts(self) -> None:
        """Log the mean of each part."""
        for label, part in self.counts.parts.items():
            log.info("part %s: mean %.6g over %d completions", label, part.mean, part.scored)

    def state(self) -> dict[str, Any]:
        """The service's counts, for the run's page."""
        counts = self.counts
        value: dict[str, Any] = {
            "scored": counts.scored,
            "failed": dict(counts.failed),
            "retried": dict(counts.retried),
            "results": dict(counts.results),
            "parts": {
                label: {"scored": part.scored, "mean": part.mean} for label, part in counts.parts.items()
            },
            "forgeable": counts.forgeable,
            "seconds": counts.seconds,
            "executed": counts.executed,
        }
        if self._sandboxes is not None:
            value["sandbox"] = {
                "runs": self._sandboxes.runs,
                "tests": dict(self._sandboxes.tests),
                "failed": self._sandboxes.failed,
            }
        if self.remote.requests:
            value["remote"] = self.remote.state()
        return value
