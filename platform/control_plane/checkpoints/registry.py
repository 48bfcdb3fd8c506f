"""Every write of the checkpoint registry: aliases, pins, the retention policy, and what it frees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.identity.services import note_project
from control_plane.accounts.models import Project
from control_plane.assets.storage import store
from control_plane.checkpoints.models import (
    AliasGate,
    Checkpoint,
    CheckpointAlias,
    CheckpointKind,
    CheckpointState,
    RetentionPolicy,
)
from control_plane.checkpoints.retention import Candidate, Policy, RetentionDecision, evaluate
from control_plane.core.api.errors import FieldError, Problem, conflict, or_not_found, unprocessable
from control_plane.core.infra.isolate_errors import isolate_errors
from control_plane.webhooks import outbox

GRACE_PERIOD = timedelta(days=30)  # so long the bytes of a freed checkpoint are looked for
Judge = Callable[[AliasGate, Checkpoint], dict[str, Any]]  # raises Problem when the gate is not passed
Needs = Callable[[Project], Mapping[str, list[str]]]  # checkpoint id → who needs it


def set_alias(
    caller: Caller,
    name: str,
    checkpoint: Checkpoint,
    *,
    protected: bool | None = None,
    expected: str | None = None,
    force: bool = False,
    pass_gate: Judge,
    now: datetime,
) -> CheckpointAlias:
    """Let a name mean this checkpoint. It moves; the move is written down, with the evidence where it has a gate.

    With `force` a gate that is not passed is overridden, and an audit entry of its own says so. 403 when the alias is
    or becomes protected, or `force` is given, and the caller lacks checkpoints:admin; 409 when its gate is not
    passed, when `expected` was given and the alias means another checkpoint, or when the checkpoint's bytes
    are gone.
    """
    if name == "latest":
        message = "latest always means a run's newest checkpoint; give the alias another name"
        raise unprocessable("invalid", message, [FieldError("/alias", "reserved", message)])
    with transaction.atomic():
        held = Checkpoint.objects.select_for_update().get(pk=checkpoint.pk)
        if held.state == CheckpointState.DELETED:
            raise conflict(
                "deleted", f"the bytes of {held.pk} were freed; an alias needs a checkpoint that is there"
            )
        alias = CheckpointAlias.objects.select_for_update().filter(project=caller.project, name=name).first()
        before = alias.checkpoint_id if alias else None
        if expected is not None and before != expected:
            raise conflict("alias_moved", f"{name!r} means {before or 'nothing'} now, not {expected}")
        becomes = protected if protected is not None else bool(alias and alias.protected)
        gate = AliasGate.objects.select_for_update().filter(project=caller.project, alias=name).first()
        if force:
            _need_admin(caller, name, "passing over its gate with force")
        protection_changes = becomes != bool(alias and alias.protected)
        if protection_changes or (gate is None and becomes):
            _need_admin(caller, name)
        evidence = _evidence(caller, gate, held, pass_gate, force=force) if gate is not None else None
        if alias is None:
            alias = CheckpointAlias(project=caller.project, name=name)
        alias.checkpoint, alias.protected, alias.updated_by, alias.updated_at = (
            held,
            becomes,
            caller.user,
            now,
        )
        alias.evidence = evidence
        alias.save()
        note_project(
            caller, "checkpoint_alias", f"{name} → {held.run_name} step {held.step} ({held.pk})", now=now,
            data={"alias": name, "from": before, "to": held.pk, "protected": becomes, "evidence": evidence},
        )  # fmt: skip
        if evidence is not None and not evidence["passed"]:
            note_project(
                caller, "checkpoint_gate_overridden",
                f"{caller.user.username} moved {name} to {held.pk} with force: {evidence['refusal']}", now=now,
                data={"alias": name, "from": before, "to": held.pk, "refusal": evidence["refusal"]},
            )  # fmt: skip
        shown = {"id": held.pk, "run_id": held.run_id, "run_name": held.run_name, "step": held.step}
        told = {"alias": name, "from": before, "checkpoint": shown, "by": caller.user.username}
        outbox.emit(caller.project.pk, "checkpoint.promoted", told, now=now)
    return alias


def delete_alias(caller: Caller, name: str, *, now: datetime) -> None:
    with transaction.atomic():
        alias = or_not_found(
            CheckpointAlias.objects.select_for_update().filter(project=caller.project, name=name).first(),
            "alias",
            name,
        )
        if alias.protected or AliasGate.objects.filter(project=caller.project, alias=name).exists():
            _need_admin(caller, name)
        note_project(
            caller, "checkpoint_alias", f"{name} removed", now=now,
            data={"alias": name, "from": alias.checkpoint_id, "to": None},
        )  # fmt: skip
        alias.delete()


def _evidence(
    caller: Caller, gate: AliasGate, checkpoint: Checkpoint, pass_gate: Judge, *, force: bool
) -> dict[str, Any]:
    """Of the passed gate; with `force` of one that is not, what it had to say against the move."""
    try:
        return pass_gate(gate, checkpoint)
    except Problem as refusal:
        if force:
            return {"passed": False, "by_role": True, "refusal": refusal.detail}
        if "checkpoints:admin" in caller.scopes:
            refusal.detail += ". Your role may override the gate: force (--force); the audit log records it"
        raise


def set_gate(
    caller: Caller, alias: str, *, spec: dict[str, Any], assertions: list[str], now: datetime
) -> AliasGate:
    """From now on the alias moves to what has passed this, or by a role. The newest setting holds."""
    with transaction.atomic():
        gate, _ = AliasGate.objects.update_or_create(
            project=caller.project, alias=alias,
            defaults={"spec": spec, "assertions": assertions, "updated_by": caller.user, "updated_at": now},
        )  # fmt: skip
        note_project(
            caller, "checkpoint_gate", f"gate of {alias}: {' and '.join(assertions)}", now=now,
            data={"alias": alias, "assertions": assertions, "spec": spec},
        )  # fmt: skip
    return gate


def delete_gate(caller: Caller, gate: AliasGate, *, now: datetime) -> None:
    with transaction.atomic():
        note_project(
            caller, "checkpoint_gate", f"gate of {gate.alias} removed", now=now, data={"alias": gate.alias}
        )
        gate.delete()


def note_measured(checkpoint_id: str, values: Mapping[str, float]) -> None:
    """What an evaluation of this very checkpoint said; the newest says it. Call inside a transaction."""
    held = Checkpoint.objects.select_for_update().get(pk=checkpoint_id)
    held.metrics = {**held.metrics, **values}
    held.save(update_fields=["metrics"])


def kind_of(run_kind: str, *, final: bool) -> CheckpointKind:
    """What a checkpoint of a run of this kind holds: what a warm start ends with is for other runs to begin with."""
    return CheckpointKind.WEIGHTS if run_kind == "sft" and final else CheckpointKind.TRAINING


def pin(checkpoint: Checkpoint, pinned: bool) -> Checkpoint:
    """A pinned checkpoint is never freed by a policy."""
    with transaction.atomic():
        held = Checkpoint.objects.select_for_update().get(pk=checkpoint.pk)
        if pinned and held.state == CheckpointState.DELETED:
            raise conflict("deleted", f"the bytes of {held.pk} were freed; there is nothing to pin")
        held.pinned = pinned
        held.save(update_fields=["pinned"])
    return held


def hold_stored(checkpoint_id: str) -> bool:
    """Whether a checkpoint is STORED, and stays so until the caller's transaction ends."""
    found = Checkpoint.objects.select_for_update().filter(pk=checkpoint_id, state=CheckpointState.STORED)
    return found.first() is not None


# --- retention --------------------------------------------------------------------------------------------


def policy_of(project: Project) -> tuple[Policy, bool]:
    """The project's policy, and whether the clean-up applies it by itself."""
    row = RetentionPolicy.objects.filter(project=project).first()
    if row is None:
        return Policy(), False
    return Policy(**{**row.rules, "kinds": tuple(row.rules.get("kinds", ()))}), row.automatic


def set_policy(caller: Caller, policy: Policy, *, automatic: bool, now: datetime) -> None:
    with transaction.atomic():
        RetentionPolicy.objects.update_or_create(
            project=caller.project, defaults={"rules": asdict(policy), "automatic": automatic}
        )
        note_project(
            caller, "checkpoint_retention", f"{caller.user.username} changed what checkpoints are kept", now=now,
            data={"rules": asdict(policy), "automatic": automatic},
        )  # fmt: skip


def plan_retention(
    project: Project, policy: Policy, needs: Needs, *, now: datetime
) -> list[RetentionDecision]:
    """What the policy would free and keep now, and why. Nothing changes."""
    return evaluate(_candidates(project, needs), policy, now=now)


def apply_retention(
    project: Project, policy: Policy, needs: Needs, *, now: datetime
) -> list[RetentionDecision]:
    """Free what the policy frees at this moment. Rows and lineage stay; bytes go once nobody names them."""
    with transaction.atomic():
        # Whoever is about to need one of these waits here, or is seen by `needs`. What is stored from here on is not
        # held, so it is not evaluated either: it waits for the next time.
        own = Checkpoint.objects.select_for_update().filter(project=project, state=CheckpointState.STORED)
        held = set(own.order_by("pk").values_list("pk", flat=True))
        decisions = evaluate(_candidates(project, needs, among=held), policy, now=now)
        freed = [decision.id for decision in decisions if decision.deletable]
        hashes = list(Checkpoint.objects.filter(pk__in=freed).values_list("tar_sha256", flat=True))
        Checkpoint.objects.filter(pk__in=freed).update(state=CheckpointState.DELETED, deleted_at=now)
        for sha256 in set(hashes):
            # What the storage does not delete now is left to `collect_garbage`.
            store.delete_on_commit(sha256)
    return decisions


def collect_garbage(*, now: datetime) -> int:
    """Delete what the storage did not, when its checkpoint was freed; returns how many blobs. Safe to repeat."""
    lately = Checkpoint.objects.filter(state=CheckpointState.DELETED, deleted_at__gte=now - GRACE_PERIOD)
    freed = 0
    for sha256 in lately.exclude(tar_sha256="").values_list("tar_sha256", flat=True).distinct():
        with isolate_errors(f"freeing the bytes {sha256[:12]}"):
            freed += store.has_blob(sha256) and store.delete_if_unreferenced(sha256)
    return freed


def _candidates(project: Project, needs: Needs, *, among: Collection[str] | None = None) -> list[Candidate]:
    """Of the project's stored checkpoints; of those whose ids are `among` the given ones."""
    needed: dict[str, list[str]] = {key: list(why) for key, why in needs(project).items()}
    for alias in CheckpointAlias.objects.filter(project=project).order_by("name"):
        needed.setdefault(alias.checkpoint_id, []).append(f"alias {alias.name}")
    stored = Checkpoint.objects.filter(project=project, state=CheckpointState.STORED).order_by("-pk")
    if among is not None:
        stored = stored.filter(pk__in=among)
    candidates = []
    for row in stored:
        assert row.stored_at is not None  # set with the state
        who = [*(["pinned"] if row.pinned else []), *needed.get(row.pk, [])]
        candidates.append(
            Candidate(
                id=row.pk, run_id=row.run_id, step=row.step, kind=row.kind, final=row.final, bytes=row.bytes,
                stored_at=row.stored_at, metrics=row.metrics, needed=tuple(who),
            )
        )  # fmt: skip
    return candidates


def _need_admin(caller: Caller, name: str, what: str = "moving it") -> None:
    if "checkpoints:admin" not in caller.scopes:
        raise Problem(
            403,
            "missing_scope",
            f"the alias {name!r} is protected; {what} needs the scope checkpoints:admin",
        )
