"""Runs and checkpoints: which runs need a checkpoint, its lineage, and its model card."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Project
from control_plane.checkpoints import registry
from control_plane.checkpoints.models import Checkpoint, CheckpointAlias, RetentionPolicy
from control_plane.core.infra.isolate_errors import isolate_errors
from control_plane.runs.models import Attempt, Run
from control_plane.runs.selectors import newest_stored_checkpoints
from oolong.contracts.lifecycle import ENDED, AttemptStatus
from oolong.contracts.run_spec.spec import TRAINING_KINDS

MAX_NODES = 200
KIND_NAMES = {
    "rl": "reinforcement learning",
    "sft": "supervised fine-tuning",
    "dpo": "direct preference optimization",
}


def reasons_to_keep(project: Project) -> dict[str, list[str]]:
    """Checkpoint ID → why runs need it: a run was trained from it, or an active run uses it or would resume from it."""
    needs: defaultdict[str, list[str]] = defaultdict(list)
    # Ended evaluations and playgrounds do not count: they made nothing from the checkpoint.
    starts = Run.objects.filter(~Q(status__in=ENDED) | Q(kind__in=TRAINING_KINDS), project=project)
    for run in starts.exclude(initial_checkpoint=None):
        needs[str(run.initial_checkpoint_id)].append(f"run {run.name!r} ({run.pk}) starts from it")
    for run in Run.objects.filter(project=project).exclude(resume_checkpoint=None).exclude(status__in=ENDED):
        needs[str(run.resume_checkpoint_id)].append(f"run {run.name!r} ({run.pk}) resumes from it")
    live = list(Run.objects.filter(project=project).exclude(status__in=ENDED))
    for run_id, checkpoint in newest_stored_checkpoints(live).items():
        needs[checkpoint.pk].append(f"the active run {run_id} would resume from it")
    resuming = Attempt.objects.filter(run__project=project).exclude(status=AttemptStatus.ENDED)
    for attempt in resuming.exclude(resume_checkpoint=None):
        needs[str(attempt.resume_checkpoint_id)].append(
            f"attempt {attempt.number} of {attempt.run_id} resumes from it"
        )
    return dict(needs)


def apply_automatic_retention(*, now: datetime) -> int:
    """Apply the retention policy of projects with automatic retention. Returns how many checkpoints were deleted."""
    deleted = 0
    for row in RetentionPolicy.objects.filter(automatic=True).select_related("project"):
        with isolate_errors(f"the automatic retention of project {row.project.pk}"):
            policy, _ = registry.policy_of(row.project)
            decisions = registry.apply_retention(row.project, policy, reasons_to_keep, now=now)
            deleted += sum(decision.deletable for decision in decisions)
    return deleted


def lineage(caller: Caller, checkpoint: Checkpoint) -> dict[str, Any]:
    """The lineage graph of a checkpoint: all its ancestors, the runs that start from it, and their checkpoints.

    An edge points from an input to its result.
    """
    graph = _Graph(caller)
    graph.add_ancestors(checkpoint)
    graph.add_children(checkpoint)
    return {
        "nodes": list(graph.nodes.values()),
        "edges": [{"from": first, "to": second, "kind": kind} for first, second, kind in sorted(graph.edges)],
        "truncated": graph.truncated,
    }


class _Graph:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.nodes: dict[str, dict[str, Any]] = {}
        self.edges: set[tuple[str, str, str]] = set()
        self.truncated = False

    def add_ancestors(self, checkpoint: Checkpoint) -> None:
        waiting = [checkpoint]
        while waiting:
            current = waiting.pop()
            if not self._add_checkpoint(current):
                continue
            run = self._run(current.run_id)
            if run is None:
                continue
            self._add_run(run)
            self.edges.add((run.pk, current.pk, "left"))
            if run.resume_checkpoint is not None:
                self.edges.add((run.resume_checkpoint.pk, run.pk, "resumed"))
                waiting.append(run.resume_checkpoint)
            if run.initial_checkpoint is not None:
                self.edges.add((run.initial_checkpoint.pk, run.pk, "starts_from"))
                waiting.append(run.initial_checkpoint)
            if current.parent is not None:
                self.edges.add((current.parent.pk, current.pk, "resumed"))
                waiting.append(current.parent)

    def add_children(self, checkpoint: Checkpoint) -> None:
        for run in Run.objects.filter(project=self._caller.project, initial_checkpoint=checkpoint):
            self._add_run(run)
            self.edges.add((checkpoint.pk, run.pk, "starts_from"))
            for child in Checkpoint.objects.filter(project=self._caller.project, run_id=run.pk):
                if self._add_checkpoint(child):
                    self.edges.add((run.pk, child.pk, "left"))

    def _run(self, run_id: str) -> Run | None:
        own = Run.objects.filter(project=self._caller.project, pk=run_id)
        related = ("dataset_version__dataset", "base_model", "initial_checkpoint", "resume_checkpoint")
        return own.select_related(*related).first()

    def _add_checkpoint(self, row: Checkpoint) -> bool:
        name = f"{row.run_name} step {row.step}"
        return self._add(row.pk, "checkpoint", name, state=row.state, checkpoint_kind=str(row.kind))

    def _add_run(self, run: Run) -> None:
        if not self._add(run.pk, "run", run.name, status=str(run.status)):
            return
        if run.kind != "playground":
            self._add_rows(run)
        if run.base_model is not None:
            self._add(run.base_model.pk, "base_model", run.base_model.name, sha256=run.base_model.sha256)
            self.edges.add((run.base_model.pk, run.pk, "starts_from"))
        for function in run.functions.select_related("function"):
            self._add(function.pk, "function_version", function.ref, sha256=function.sha256)
            self.edges.add((function.pk, run.pk, function.function.kind))

    def _add_rows(self, run: Run) -> None:
        version = run.trained_on
        if (
            self._add(version.pk, "dataset_version", version.ref, sha256=version.sha256)
            or version.pk in self.nodes
        ):
            self.edges.add((version.pk, run.pk, "trained_on"))

    def _add(self, key: str, kind: str, name: str, **facts: Any) -> bool:
        """Add a node. False when it exists already or the graph is full."""
        if key in self.nodes:
            return False
        if len(self.nodes) >= MAX_NODES:
            self.truncated = True
            return False
        self.nodes[key] = {"id": key, "kind": kind, "name": name, **facts}
        return True


def model_card(caller: Caller, checkpoint: Checkpoint) -> str:
    """README.md of the exported Hugging Face directory: origin, training and metrics of the checkpoint."""
    run = Run.objects.filter(project=caller.project, pk=checkpoint.run_id).select_related(
        "dataset_version__dataset", "base_model", "initial_checkpoint"
    ).first()  # fmt: skip
    aliases = (
        CheckpointAlias.objects.filter(checkpoint=checkpoint).order_by("name").values_list("name", flat=True)
    )
    facts = [
        ("checkpoint", f"`{checkpoint.pk}`"),
        (
            "run",
            f"{_escape_markdown(checkpoint.run_name)} (`{checkpoint.run_id}`), attempt {checkpoint.attempt_number}",
        ),
        ("step", str(checkpoint.step)),
        ("kind of checkpoint", str(checkpoint.kind)),
        *([("adapter for", _base(checkpoint.base))] if checkpoint.base is not None else []),
        ("aliases", ", ".join(aliases) or "none"),
        ("sha256 of the manifest", f"`{checkpoint.manifest_sha256}`"),
        *[
            (name, f"{value:.4g}")
            for name, value in checkpoint.metrics.items()
            if isinstance(value, int | float)
        ],
    ]
    if run is not None:
        facts += [
            ("kind", KIND_NAMES.get(run.kind, run.kind)),
            ("trained on", f"{_escape_markdown(run.trained_on.ref)}, sha256 `{run.trained_on.sha256}`"),
            ("started from", _origin(run)),
        ]
    title = f"{_escape_markdown(checkpoint.run_name)}, step {checkpoint.step}"
    front = [
        "---",
        "library_name: transformers",
        f"tags: [{run.kind if run is not None and run.kind in TRAINING_KINDS else 'rl'}]",
        "---",
    ]
    table = ["| | |", "| --- | --- |", *[f"| {name} | {value} |" for name, value in facts]]
    spec = (
        []
        if run is None
        else ["## RunSpec", "", "```json", json.dumps(run.spec, indent=2, sort_keys=True), "```"]
    )
    return "\n".join([*front, "", f"# {title}", "", *table, "", *spec, ""])


def _origin(run: Run) -> str:
    if run.base_model is not None:
        return f"base model {_escape_markdown(run.base_model.name)}"
    assert run.initial_checkpoint is not None
    return f"checkpoint `{run.initial_checkpoint.pk}`"


def _base(base: Mapping[str, str]) -> str:
    return f"{_escape_markdown(base['name'])} (`{base['id']}`), sha256 of its manifest `{base['sha256']}`"


def _escape_markdown(text: str) -> str:
    """Escape a user's text for use inside a Markdown table cell."""
    return "".join(
        f"\\{letter}" if letter in "\\`*_{}[]()<>#|!" else letter for letter in " ".join(text.split())
    )
