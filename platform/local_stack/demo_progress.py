"""Print the demo's progress and summary: progress bars on a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import fill
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from local_stack.demo_summary import failed_checks, reward_gain
from oolong.cli.run_output import active_stage
from oolong.client import Client
from oolong.client.models import Run

ENDED = ("SUCCEEDED", "STOPPED", "FAILED")
POLL_SECONDS = 1.0
LINE_SECONDS = 10.0
BOOT = "boot"  # the phase of jobs that load; the run's checklist says more


class RunProgress:
    """Follows one run through the API until it ends."""

    def __init__(self, client: Client, run_id: str, console: Console) -> None:
        self.client, self.run_id, self.console = client, run_id, console
        self.progress = Progress(
            TextColumn("  {task.description:<14}"), BarColumn(bar_width=30), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("{task.fields[news]}"), console=console, transient=False,
            disable=not console.is_terminal,
        )  # fmt: skip
        self.tasks: dict[str, TaskID] = {}
        self.last_line_at = 0.0
        self.last_line = ""

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def follow(self) -> None:
        while True:
            run = self.client.runs.get(self.run_id)
            self.show(run)
            if run.status in ENDED:
                return
            time.sleep(POLL_SECONDS)

    def show(self, run: Run) -> None:
        news = describe(run)
        if run.progress is not None:
            task = self.tasks.get(run.progress.phase)
            if task is None:
                task = self.progress.add_task(run.progress.phase.replace("_", " "), total=None, news="")
                self.tasks[run.progress.phase] = task
            booting = run.progress.phase == BOOT
            self.progress.update(
                task, completed=0 if booting else run.progress.done,
                total=None if booting else run.progress.total or None, news=news,
            )  # fmt: skip
        if not self.console.is_terminal:
            self._line(run, news)

    def _line(self, run: Run, news: str) -> None:
        phase = ""
        if run.progress is not None and run.progress.phase != BOOT:
            phase = f"{run.progress.phase} {run.progress.done}/{run.progress.total} "
        line = f"  {run.status.lower()}  {phase}{news}"
        now = time.monotonic()
        if line != self.last_line and (now - self.last_line_at >= LINE_SECONDS or run.status in ENDED):
            self.console.print(line, markup=False)
            self.last_line, self.last_line_at = line, now


def describe(run: Run) -> str:
    """Current reward and staleness, or what the run waits for: slots, or a stage of its boot."""
    if run.status == "QUEUED":
        return run.pending_reason
    parts = []
    if run.kind == "rl" and run.reward_mean is not None:
        filled = round(max(0.0, min(1.0, run.reward_mean)) * 20)
        parts.append(f"reward {run.reward_mean:.2f} {'█' * filled}{'░' * (20 - filled)}")
    if run.kind == "rl" and run.staleness_mean is not None:
        parts.append(f"staleness {run.staleness_mean:.1f}")
    if not parts and (run.progress is None or run.progress.phase == BOOT):
        stage = active_stage(run)
        if stage is None:
            return ""
        return f"boot: {stage.title.lower()}" + (f" ({stage.detail})" if stage.detail else "")
    if not parts and run.progress is not None:
        parts.append(run.progress.message)
    return "  ".join(parts)


def print_summary(console: Console, summary: dict[str, Any], path: Path, page: str) -> None:
    """Print the summary, its explanation and the failed checks."""
    console.print()
    for name, value in _rows(summary):
        console.print(f"  {name:<14} {value}", markup=False)
    console.print(f"  {'page':<14} {page}\n  {'summary':<14} {path}\n", markup=False)
    failures = failed_checks(summary)
    console.print(
        fill(summary_text(summary, passed=not failures), width=min(console.width, 100)), markup=False
    )
    for failure in failures:
        console.print(f"[bold red]Failed:[/] {failure}.")


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    reward, staleness, idle = summary["reward"], summary["staleness"] or {}, summary["idle"]
    before, after = summary["eval"]["before"] or {}, summary["eval"]["after"] or {}
    mismatch, sync = summary["engine_mismatch"] or {}, summary["weight_sync"]
    return [
        ("run", f"{summary['run_id']} {summary['status']}"),
        ("train steps", f"{summary['train_steps']}, policy version {summary['policy_version']}"),
        (
            "reward",
            f"{_number(reward['first_10_steps_mean'])} → {_number(reward['last_10_steps_mean'])}, "
            f"means of the first and the last ten steps: gain {_number(reward_gain(summary))}",
        ),
        (
            "held-out",
            f"sampled {_number(before.get('sampled'))} → {_number(after.get('sampled'))}, "
            f"greedy {_number(before.get('greedy'))} → {_number(after.get('greedy'))}, "
            f"{summary['eval']['prompts']} prompts",
        ),
        (
            "staleness",
            f"mean {_number(staleness.get('mean'))}, p95 {staleness.get('p95')}, max {staleness.get('max')}, "
            f"configured η = {staleness.get('max_configured')}",
        ),
        (
            "interruptions",
            f"{summary['interruptions']} requests interrupted, "
            f"{summary['trajectories_spanning_versions']} trajectories span policy versions",
        ),
        ("ledger", _ledger(summary["ledger"])),
        ("idle", f"trainer {_percent(idle['trainer'])}, rollout {_percent(idle['rollout'])}"),
        (
            "weight sync",
            f"trainer blocked {_percent(sync['trainer_blocked_frac'])}, engines paused "
            f"{_percent(sync['engine_paused_frac'])} of the time, {sync['acks']} acknowledgements",
        ),
        (
            "mismatch",
            f"max |logprob difference| {mismatch.get('max')} over {mismatch.get('tokens_compared')} tokens "
            f"of {mismatch.get('versions_covered')} versions",
        ),
        ("checkpoint", (summary["checkpoint"] or {}).get("id", "none")),
    ]


def summary_text(summary: dict[str, Any], *, passed: bool) -> str:
    """Explain the measurements in one paragraph. `passed`: all checks of the demo passed."""
    before, after = summary["eval"]["before"] or {}, summary["eval"]["after"] or {}
    staleness = summary["staleness"] or {}
    if passed:
        result = (
            "This demo ran the complete asynchronous RL loop on this machine. SGLang sampled while the FSDP2 "
            f"trainer updated the weights {summary['train_steps']} times; {summary['interruptions']} requests were "
            "interrupted by new weights and continued; decoupled PPO trained on the mixture. The training data was "
            f"{_number(staleness.get('mean'))} versions old on average and {staleness.get('max')} at most "
            f"(configured maximum: {staleness.get('max_configured')})."
        )
    else:
        result = "This run failed at least one check of the demo; see below."
    return (
        f"{result} On held-out prompts sampled accuracy went from {_number(before.get('sampled'))} to "
        f"{_number(after.get('sampled'))} and greedy accuracy from {_number(before.get('greedy'))} to "
        f"{_number(after.get('greedy'))}: the warm start learned from demonstrations with deliberate errors, and RL "
        "removes those errors from the samples; it teaches no new skill. The demo does not measure speed: on two "
        "CPU cores, generation and training compete for the same cores, so asynchrony saves no wall time, and a "
        "model of 116 thousand parameters says nothing about learning at scale."
    )


def _ledger(ledger: dict[str, Any]) -> str:
    states = ("drawn", "trained", "dropped_by_reason", "waiting", "running", "buffered", "taken")
    return ", ".join(f"{state.removesuffix('_by_reason')} {ledger.get(state) or 0}" for state in states)


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1%}"
