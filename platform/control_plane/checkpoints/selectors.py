"""Every read of checkpoints, aliases and promotion gates. What is another project's does not exist."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.checkpoints.models import AliasGate, Checkpoint, CheckpointAlias, CheckpointState
from control_plane.core.api.errors import or_not_found


def checkpoints(caller: Caller) -> QuerySet[Checkpoint]:
    own = Checkpoint.objects.filter(project=caller.project)
    return own.select_related("base_model", "base_checkpoint").prefetch_related("aliases")


def checkpoint_aliases(caller: Caller) -> QuerySet[CheckpointAlias]:
    own = CheckpointAlias.objects.filter(project=caller.project)
    return own.select_related(
        "checkpoint__base_model", "checkpoint__base_checkpoint", "updated_by"
    ).prefetch_related("checkpoint__aliases")


def alias_gates(caller: Caller) -> QuerySet[AliasGate]:
    return AliasGate.objects.filter(project=caller.project).select_related("updated_by")


def alias_gate_for(caller: Caller, alias: str) -> AliasGate:
    return or_not_found(alias_gates(caller).filter(alias=alias).first(), "gate", alias)


def find_checkpoint(caller: Caller, reference: str) -> Checkpoint | None:
    """By id, by alias, or of a run: `run_…@20`, `run_…@latest`, and the same with the run's name."""
    own = checkpoints(caller)
    if reference.startswith("ckpt_"):
        return own.filter(pk=reference).first()
    run, at, step = reference.rpartition("@")
    if not at:
        return own.filter(aliases__name=reference).first()
    of_run = own.filter(Q(run_id=run) | Q(run_name=run)).exclude(state=CheckpointState.DELETED)
    if step == "latest":
        return of_run.order_by("-run_id", "-step", "-pk").first()
    if not (step.isascii() and step.isdecimal()):
        return None
    return of_run.filter(step=int(step)).order_by("-run_id", "-pk").first()


def checkpoint_for(caller: Caller, checkpoint_id: str) -> Checkpoint:
    return or_not_found(checkpoints(caller).filter(pk=checkpoint_id).first(), "checkpoint", checkpoint_id)
