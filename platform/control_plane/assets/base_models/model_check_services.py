"""Checks of models on their way: a process here for an archive, a node that offers the directory for a path."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from django.db import transaction
from django.db.models import Q, QuerySet

from control_plane.accounts.models import Team
from control_plane.assets.background import processes
from control_plane.assets.background.archive_extraction.job import JOB_FILE, TAR_FILE, UnfoldJob, read_result
from control_plane.assets.background.runner import advance
from control_plane.assets.base_models.model_services import finalize
from control_plane.assets.models import CheckState, ModelCheck
from control_plane.assets.storage import store
from control_plane.core.api.errors import conflict, not_found, or_not_found
from oolong.contracts.model_paths import root_of
from oolong.contracts.model_report import CheckOrder, Fault, ModelReport

MODULE = "control_plane.assets.background.archive_extraction"
AT_ONCE = 1  # processes on this machine
LONGEST = timedelta(hours=4)  # of a process and of storing what it leaves: hundreds of gigabytes
SILENCE = timedelta(minutes=5)  # of a node, or of a machine with workers, after which another may have it
TOLD_EVERY = timedelta(seconds=30)  # by a machine, that its process is alive
LONGEST_OF_PATH = timedelta(hours=24)  # of a node: it reads as much, from a file system that may be slow
LONGEST_WAIT = timedelta(hours=24)  # for a node that takes it
MOST_TRIES = 3
OF_ARCHIVES, OF_PATHS = ~Q(archive_sha256=""), Q(archive_sha256="")


def advance_model_checks(*, now: datetime) -> None:
    advance(
        ModelCheck.objects.filter(OF_ARCHIVES).select_related("model"), project="model__project_id",
        at_once=AT_ONCE, start=_start, look_after=_look_after, fail=_fail_by_error, now=now,
    )  # fmt: skip
    _give_away(now=now)


def _fail_by_error(check: ModelCheck, message: str, *, now: datetime) -> None:
    _fail(check, "server_error", message, now=now)


def _start(check: ModelCheck, *, here: str, now: datetime) -> None:
    taken = ModelCheck.objects.filter(pk=check.pk, state=CheckState.QUEUED).update(
        state=CheckState.RUNNING, host=here, pid=0, tries=check.tries + 1, started_at=now, touched_at=now
    )
    if not taken:
        return
    check.refresh_from_db()
    folder = _folder(check)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    job = UnfoldJob(archive=store.presign(check.archive_sha256))
    (folder / JOB_FILE).write_bytes(msgspec.json.encode(job))
    ModelCheck.objects.filter(pk=check.pk).update(pid=processes.start(MODULE, folder))


def _look_after(check: ModelCheck, *, here: str, now: datetime) -> None:
    assert check.started_at is not None and check.touched_at is not None  # set with the state
    folder = _folder(check)
    mine = check.host == here and check.pid > 0
    alive = mine and processes.is_alive(check.pid, folder)
    report = read_result(folder)  # after the look at the process: it may have ended between the two
    if now - check.started_at > LONGEST:  # also where storing the archive never ends within a tick
        if alive:
            processes.kill(check.pid)
        what = "the check" if report is None else "storing the checked archive"
        _fail(check, "took_too_long", f"{what} took longer than {LONGEST.total_seconds():.0f} s", now=now)
    elif report is not None:
        _adopt_and_settle(check, report, now=now)
    elif alive:
        if now - check.touched_at > TOLD_EVERY:
            ModelCheck.objects.filter(pk=check.pk, state=CheckState.RUNNING).update(touched_at=now)
    elif mine:
        said = processes.last_words(folder)
        _fail(check, "check_died", f"the process that checked the archive died: {said}", now=now)
    elif now - check.touched_at > SILENCE:
        _begin_again(check, now=now)


def _begin_again(check: ModelCheck, *, now: datetime) -> None:
    """The machine that had it is gone, or was restarted under another name."""
    if check.tries >= MOST_TRIES:
        _fail(check, "check_died", f"{check.tries} machines began the check and fell silent", now=now)
        return
    ModelCheck.objects.filter(pk=check.pk, state=CheckState.RUNNING, tries=check.tries).update(
        state=CheckState.QUEUED
    )


def _adopt_and_settle(check: ModelCheck, report: ModelReport, *, now: datetime) -> None:
    tar = _folder(check) / TAR_FILE
    # The tar that the SDK or a node made is kept as it came: the open check holds it.
    is_new = bool(report.tar_sha256) and report.tar_sha256 != check.archive_sha256
    # A tick that was killed after this has taken the file away already; the blob is there then.
    if is_new and (tar.exists() or not store.has_blob(report.tar_sha256)):
        store.move_in(tar, store.Blob(report.tar_sha256, report.tar_bytes))
    finalize(check, report, now=now)
    shutil.rmtree(_folder(check), ignore_errors=True)


def _fail(check: ModelCheck, code: str, message: str, *, now: datetime) -> None:
    pointer = "/path" if check.path else "/upload_id"
    finalize(check, ModelReport(message=message, faults=[Fault(pointer, code, message)]), now=now)
    shutil.rmtree(_folder(check), ignore_errors=True)


def _folder(check: ModelCheck) -> Path:
    """Of this try: what an earlier one still writes elsewhere is nobody's."""
    return store.validation_folder(f"{check.pk}-{check.tries}")


# --- nodes ------------------------------------------------------------------------------------------------


def _give_away(*, now: datetime) -> None:
    """What a node is silent about is for another one, a few times; what takes for ever or no node takes ends."""
    paths = ModelCheck.objects.filter(OF_PATHS).select_related("model")
    for check in paths.filter(state=CheckState.RUNNING, started_at__lt=now - LONGEST_OF_PATH):
        hours = LONGEST_OF_PATH.total_seconds() / 3600
        _fail(check, "took_too_long", f"node {check.node_id} did not end the check in {hours:.0f} h", now=now)
    silent = paths.filter(state=CheckState.RUNNING, touched_at__lt=now - SILENCE)
    for check in silent.filter(tries__gte=MOST_TRIES):
        _fail(check, "node_silent", f"{check.tries} nodes took the check and fell silent", now=now)
    silent.filter(tries__lt=MOST_TRIES).update(state=CheckState.QUEUED, node_id="")
    for check in paths.filter(state=CheckState.QUEUED, created_at__lt=now - LONGEST_WAIT):
        hours = LONGEST_WAIT.total_seconds() / 3600
        _fail(check, "no_node", f"no node that offers {check.path} took the check in {hours:.0f} h", now=now)


def checks_for(node_id: str, teams: QuerySet[Team], roots: list[str], *, takes_work: bool) -> list[str]:
    """What a node is told at its heartbeat: its own checks, else the oldest that waits and lies below its roots.
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
    """404 when it is no check of this node, or another's by now; 409 when it has ended."""
    check = or_not_found(
        ModelCheck.objects.select_related("model").filter(OF_PATHS, pk=check_id, node_id=node_id).first(),
        "model check",
        check_id,
    )
    if check.state != CheckState.RUNNING:
        raise conflict("stale_epoch", f"check {check_id} is {check.state}")
    return check
