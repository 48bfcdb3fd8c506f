"""Checks of models on their way: a process here for an archive, a node that offers the directory for a path."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from django.db import transaction
from django.db.models import Q, QuerySet

from control_plane.accounts.models import Team
from control_plane.assets.background.archive_extraction.job import TAR_FILE, UnfoldJob, read_result
from control_plane.assets.background.runner import MOST_TRIES, SILENCE, Kind, advance
from control_plane.assets.base_models.model_services import finalize
from control_plane.assets.models import CheckState, ModelCheck
from control_plane.assets.storage import store
from control_plane.core.api.errors import conflict, not_found, or_not_found
from oolong.contracts.model_paths import root_of
from oolong.contracts.model_report import CheckOrder, Fault, ModelReport

MODULE = "control_plane.assets.background.archive_extraction"
AT_ONCE = 1  # processes on this machine
LONGEST = timedelta(hours=4)  # of a process: hundreds of gigabytes
LONGEST_OF_PATH = timedelta(hours=24)  # of a node: it reads as much, from a file system that may be slow
LONGEST_WAIT = timedelta(hours=24)  # for a node that takes it
OF_ARCHIVES, OF_PATHS = ~Q(archive_sha256=""), Q(archive_sha256="")


def advance_model_checks(*, now: datetime) -> None:
    kind = Kind(
        jobs=ModelCheck.objects.filter(OF_ARCHIVES).select_related("model"), project="model__project_id",
        module=MODULE, activity="checked the archive", at_once=AT_ONCE, longest=LONGEST,
        job_file=lambda check: UnfoldJob(archive=store.presign(check.archive_sha256)),
        read_result=read_result, settle=_adopt_and_settle, fail=_fail,
    )  # fmt: skip
    advance(kind, now=now)
    _give_away(now=now)


def _adopt_and_settle(check: ModelCheck, report: ModelReport, folder: Path, now: datetime) -> None:
    tar = folder / TAR_FILE
    # The tar that the SDK or a node made is kept as it came: the open check holds it.
    is_new = bool(report.tar_sha256) and report.tar_sha256 != check.archive_sha256
    # A tick that was killed after this has taken the file away already; the blob is there then.
    if is_new and (tar.exists() or not store.has_blob(report.tar_sha256)):
        store.move_in(tar, store.Blob(report.tar_sha256, report.tar_bytes))
    finalize(check, report, now=now)


def _fail(check: ModelCheck, code: str, message: str, now: datetime) -> None:
    pointer = "/path" if check.path else "/upload_id"
    finalize(check, ModelReport(message=message, faults=[Fault(pointer, code, message)]), now=now)


# --- nodes ------------------------------------------------------------------------------------------------


def _give_away(*, now: datetime) -> None:
    """What a node is silent about is for another one, a few times; what takes for ever or no node takes ends."""
    paths = ModelCheck.objects.filter(OF_PATHS).select_related("model")
    for check in paths.filter(state=CheckState.RUNNING, started_at__lt=now - LONGEST_OF_PATH):
        hours = LONGEST_OF_PATH.total_seconds() / 3600
        _fail(check, "took_too_long", f"node {check.node_id} did not end the check in {hours:.0f} h", now)
    silent = paths.filter(state=CheckState.RUNNING, touched_at__lt=now - SILENCE)
    for check in silent.filter(tries__gte=MOST_TRIES):
        _fail(check, "node_silent", f"{check.tries} nodes took the check and fell silent", now)
    silent.filter(tries__lt=MOST_TRIES).update(state=CheckState.QUEUED, node_id="")
    for check in paths.filter(state=CheckState.QUEUED, created_at__lt=now - LONGEST_WAIT):
        hours = LONGEST_WAIT.total_seconds() / 3600
        _fail(check, "no_node", f"no node that offers {check.path} took the check in {hours:.0f} h", now)


def checks_for(node_id: str, teams: QuerySet[Team], roots: list[str], *, takes_work: bool) -> list[str]:
    """What a node receives at its heartbeat: its own checks, else the oldest that waits and lies below its roots.
    `teams`: those that may use the node; it gets nothing of others."""
    paths = ModelCheck.objects.filter(OF_PATHS, model__project__team__in=teams).order_by("pk")
    own = list(paths.filter(node_id=node_id, state=CheckState.RUNNING).values_list("pk", flat=True))
    if own or not takes_work or not roots:
        return own
    below = Q()
    for root in roots:
        below |= Q(path=root) | Q(path__startswith=f"{root.rstrip('/')}/")
    return list(paths.filter(below, state=CheckState.QUEUED).values_list("pk", flat=True)[:1])


def begin(
    node_id: str, check_id: str, teams: QuerySet[Team], roots: list[str], *, takes_work: bool, now: datetime
) -> CheckOrder:
    """The check is now this node's. 404 when another has it, the node does not offer it or the team may not use the
    node, 409 when it has ended."""
    with transaction.atomic():
        check = (
            ModelCheck.objects.select_for_update(of=("self",))
            .filter(OF_PATHS, pk=check_id, model__project__team__in=teams)
            .first()
        )
        if check is None or root_of(check.path, roots) is None:
            raise not_found("model check", check_id)
        if check.state == CheckState.QUEUED:
            if not takes_work:
                raise conflict("stale_epoch", f"this node takes nothing new, so not check {check_id} either")
            check.state, check.node_id, check.started_at = CheckState.RUNNING, node_id, now
            check.tries += 1
        elif check.node_id != node_id:
            raise not_found("model check", check_id)
        elif check.state != CheckState.RUNNING:
            raise conflict("stale_epoch", f"check {check_id} is {check.state}")
        check.touched_at = now
        check.save(update_fields=["state", "node_id", "started_at", "tries", "touched_at"])
    return CheckOrder(check_id=check.pk, path=check.path)


def report_alive(node_id: str, check_id: str, *, now: datetime) -> None:
    check = held_by(node_id, check_id)
    ModelCheck.objects.filter(pk=check.pk, state=CheckState.RUNNING, node_id=node_id).update(touched_at=now)


def complete(node_id: str, check_id: str, report: ModelReport, *, now: datetime) -> ModelCheck:
    check = held_by(node_id, check_id)
    # A tar is no business of a node that only looks.
    finalize(check, msgspec.structs.replace(report, tar_sha256="", tar_bytes=0), now=now)
    check.refresh_from_db()
    return check


def held_by(node_id: str, check_id: str) -> ModelCheck:
    """404 when it is no check of this node, or another's now; 409 when it has ended."""
    check = or_not_found(
        ModelCheck.objects.select_related("model").filter(OF_PATHS, pk=check_id, node_id=node_id).first(),
        "model check",
        check_id,
    )
    if check.state != CheckState.RUNNING:
        raise conflict("stale_epoch", f"check {check_id} is {check.state}")
    return check
