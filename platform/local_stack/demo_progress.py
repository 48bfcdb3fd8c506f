"""What the demo shows while a run goes: progress bars on a terminal, a line now and then without one."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import fill
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from local_stack.demo_summary import failed_checks, reward_gain
from oolong.client import Client
from oolong.client.models import Run

ENDED = ("SUCCEEDED", "STOPPED", "FAILED")
POLL_SECONDS = 1.0
LINE_SECONDS = 10.0


class RunProgress:
    """Follows one run to its end through the API."""

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
            self.progress.update(
                task, completed=run.progress.done, total=run.progress.total or None, news=news
            )
        if not self.console.is_terminal:
            self._line(run, news)

    def _line(self, run: Run, news: str) -> None:
        phase = f"{run.progress.phase} {run.progress.done}/{run.progress.total} " if run.progress else ""
        line = f"  {run.status.lower()}  {phase}{news}"
        now = time.monotonic()
        if line != self.last_line and (now - self.last_line_at >= LINE_SECONDS or run.status in ENDED):
            self.console.print(line, markup=False)
            self.last_line, self.last_line_at = line, now


def describe(run: Run) -> str:
    """Live reward and staleness, or why the run waits."""
    if run.status == "QUEUED":
        return run.pending_reason
    parts = []
    if run.kind == "rl" and run.reward_mean is not None:
        filled = round(max(0.0, min(1.0, run.reward_mean)) * 20)
        parts.append(f"reward {run.reward_mean:.2f} {'█' * filled}{'░' * (20 - filled)}")
    if run.kind == "rl" and run.staleness_mean is not None:
        parts.append(f"staleness {run.staleness_mean:.1f}")
    if not parts and run.progress is not None:
        parts.append(run.progress.message)
    return "  ".join(parts)


def print_summary(console: Console, summary: dict[str, Any], path: Path, page: str) -> None:
    """The summary for people, and what it does and does not show."""
    console.print()
    for name, value in _rows(summary):
        console.print(f"  {name:<14} {value}", markup=False)
    console.print(f"  {'page':<14} {page}\n  {'summary':<14} {path}\n", markup=False)
    faults = failed_checks(summary)
    console.print(fill(summary_text(summary, whole=not faults), width=min(console.width, 100)), markup=False)
    for fault in faults:
        console.print(f"[bold red]Not shown:[/] {fault}.")


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
            f"means of the first and the last ten steps: rise {_number(reward_gain(summary))}",
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
        ("idle", f"trainer {_share(idle['trainer'])}, rollout {_share(idle['rollout'])}"),
        (
            "weight sync",
            f"trainer blocked {_share(sync['trainer_blocked_frac'])}, engines paused "
            f"{_share(sync['engine_paused_frac'])} of the time, {sync['acks']} acknowledgements",
        ),
        (
            "mismatch",
            f"max |logprob difference| {mismatch.get('max')} over {mismatch.get('tokens_compared')} tokens "
            f"of {mismatch.get('versions_covered')} versions",
        ),
        ("checkpoint", (summary["checkpoint"] or {}).get("id", "none")),
    ]


def summary_text(summary: dict[str, Any], *, whole: bool) -> str:
    """One paragraph, by what was measured; `whole` if nothing of it is missing."""
    before, after = summary["eval"]["before"] or {}, summary["eval"]["after"] or {}
    staleness = summary["staleness"] or {}
    if whole:
        shown = (
            "What this showed: the whole loop with its real parts, on this machine. SGLang sampled while the FSDP2 "
            f"trainer updated the weights {summary['train_steps']} times; {summary['interruptions']} requests were "
            "interrupted by new weights and continued; decoupled PPO trained on the mixture. What it trained on was "
            f"{_number(staleness.get('mean'))} versions old on average and {staleness.get('max')} at most, where "
            f"{staleness.get('max_configured')} were allowed."
        )
    else:
        shown = "This run did not show all that it is there to show; what is missing stands below."
    return (
        f"{shown} On held-out prompts sampled accuracy went from {_number(before.get('sampled'))} to "
        f"{_number(after.get('sampled'))} and greedy accuracy from {_number(before.get('greedy'))} to "
        f"{_number(after.get('greedy'))}: the warm start learned from demonstrations with planted slips, and RL "
        "is there to remove those slips from what is sampled, not to teach a new skill. It shows nothing about "
        "speed: on two processor cores generation and training compete for the same cores, so being asynchronous "
        "cannot save wall time here, and a model of 116 thousand parameters says nothing about learning at scale."
    )


def _ledger(ledger: dict[str, Any]) -> str:
    paths = ("drawn", "trained", "dropped_by_reason", "waiting", "running", "buffered", "taken")
    return ", ".join(f"{place.removesuffix('_by_reason')} {ledger.get(place) or 0}" for place in paths)


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1%}"
