"""The boot of a run's newest attempt as a checklist of stages with times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from control_plane.runs.models import Attempt, Job, Run
from oolong.contracts.lifecycle import ENDED, AttemptStatus, RunStatus

# Stage → title. The controller reports the milestones at which stages of an RL run end (rollout.progress).
TITLES = {
    "queue": "Wait for slots",
    "node": "Node accepts the run",
    "inputs": "Fetch inputs",
    "jobs": "Start the jobs",
    "engine": "Load the model into the engine",
    "rollouts": "Generate the first group",
    "batch": "Collect the first batch",
    "step": "Train the first step",
}
MILESTONES = {
    "engine": "engine_serves",
    "rollouts": "first_group",
    "batch": "first_batch",
    "step": "first_step",
}


STATES = ["waiting", "active", "done", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    state: str  # one of STATES
    started_at: datetime | None = None
    ended_at: datetime | None = None
    detail: str = ""

    @property
    def title(self) -> str:
        return TITLES[self.name]


def boot_of(run: Run) -> list[Stage] | None:
    """The stages of the newest attempt, or of the next one while the run is queued. None for a draft."""
    if run.status == RunStatus.DRAFT:
        return None
    names = _names(run.kind)
    attempt = run.attempts.order_by("-number").first()
    if run.status == RunStatus.QUEUED or attempt is None:
        first = Stage(
            name="queue", state=_open_state(run, None), started_at=run.status_at, detail=run.pending_reason
        )
        return [first, *(Stage(name=name, state="waiting") for name in names[1:])]
    jobs = list(attempt.jobs.filter(evaluates="").order_by("pk"))
    ends = _ends(attempt, jobs)
    # A stage without a recorded end was over when a later one ended.
    latest = (
        max(filter(None, ends.values()), default=attempt.created_at) if _has_trained(run, attempt) else None
    )
    for name in reversed(names):
        latest = ends[name] = ends.get(name) or latest
    stages: list[Stage] = []
    begins: datetime | None = _timestamp(attempt.boot.get("queued_at")) or run.created_at
    for name in names:
        ended = ends[name]
        if ended is not None:
            state, detail = "done", _done_detail(name, attempt)
        elif begins is None:
            state, detail = "waiting", ""
        else:
            state, detail = _open_state(run, attempt), _open_detail(name, run, attempt)
        stages.append(Stage(name=name, state=state, started_at=begins, ended_at=ended, detail=detail))
        begins = ended
    return stages


def failed_boots(attempt: Attempt) -> list[str]:
    """One message for each engine of the attempt whose last boot failed."""
    failures: dict[str, str] = attempt.boot.get("failed_boots", {})
    return [f"{job}: {message}" for job, message in sorted(failures.items())]


def _names(kind: str) -> list[str]:
    early = ["queue", "node", "inputs"]
    return [*early, "engine", "rollouts", "batch", "step"] if kind == "rl" else [*early, "jobs"]


def _ends(attempt: Attempt, jobs: Sequence[Job]) -> dict[str, datetime | None]:
    seen = [job.observed_at for job in jobs if job.observed_at is not None]
    started = [job.started_at for job in jobs if job.started_at is not None]
    milestones = attempt.boot.get("milestones", {})
    return {
        "queue": attempt.created_at,
        "node": min(seen, default=None),
        "inputs": min(started, default=None),
        "jobs": attempt.running_at,
        **{stage: _timestamp(milestones.get(name)) for stage, name in MILESTONES.items()},
    }


def _has_trained(run: Run, attempt: Attempt) -> bool:
    """Whether the attempt has done a train step, which proves its boot even without milestones."""
    resumed_from = attempt.resume_checkpoint.step if attempt.resume_checkpoint is not None else 0
    return run.train_step > resumed_from


def _open_state(run: Run, attempt: Attempt | None) -> str:
    """The state of the current stage."""
    if attempt is not None and attempt.status == AttemptStatus.ENDED:
        return "stopped" if run.fault in ("", "none") else "failed"
    if run.status in ENDED or run.status == RunStatus.PAUSED:
        return "stopped" if run.status != RunStatus.FAILED else "failed"
    return "active"


def _open_detail(name: str, run: Run, attempt: Attempt) -> str:
    if attempt.status == AttemptStatus.ENDED:
        return attempt.message
    if name == "inputs" and "input_bytes" in attempt.boot:
        return f"{format_bytes(attempt.boot['fetched_bytes'])} of {format_bytes(attempt.boot['input_bytes'])}"
    if name == "engine":
        failures = failed_boots(attempt)
        if failures:
            return f"boot failed, retrying: {failures[0]}"
        if "trainer_ready" not in attempt.boot.get("milestones", {}):
            return "the trainer is loading its model too"
    return ""


def _done_detail(name: str, attempt: Attempt) -> str:
    if name == "inputs" and "input_bytes" in attempt.boot:
        return format_bytes(attempt.boot["input_bytes"])
    return ""


def format_bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


def _timestamp(at: object) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if isinstance(at, (int, float)) else None
