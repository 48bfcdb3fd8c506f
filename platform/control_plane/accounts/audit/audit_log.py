"""The audit log: `record` from a service, inside the transaction of what is recorded.

Entries are chained a moment later, by `append_to_chain`: a chain whose next link is taken at once would make every
audited change of a project wait for every other. Until then the triggers alone guard an entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from control_plane.accounts.models import AuditEntry
from control_plane.core.infra import clock
from control_plane.core.infra.locks import LockClass, transaction_lock
from control_plane.core.security.request_context import origin

GENESIS = "0" * 64
SEALED_AT_ONCE = 1000


def record(
    action: str,
    *,
    target: tuple[str, str] | tuple[str, str, str] = ("", ""),
    message: str = "",
    project: str | None = None,
    at: datetime | None = None,
    data: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Write down what the present caller does: `record("run.stop", target=("run", run.pk, run.name))`.

    `target` is kind, id and, where it has one, name. `data` says what changed, by preference as `before` and
    `after`; secrets have no place in it. `project` is the caller's own unless it is said.
    """
    entry = _entry(action, target=target, message=message, project=project, at=at, data=data)
    entry.save()
    return entry


def record_in(
    projects: Iterable[str],
    action: str,
    *,
    target: tuple[str, str] | tuple[str, str, str],
    at: datetime | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write the same down in the log of each of these projects, and in that of the caller's own project (of the
    installation, where the caller is in none)."""
    named = sorted({origin().project_id, *projects})
    AuditEntry.objects.bulk_create(
        _entry(action, target=target, message="", project=project, at=at, data=data) for project in named
    )


def _entry(
    action: str,
    *,
    target: tuple[str, str] | tuple[str, str, str],
    message: str,
    project: str | None,
    at: datetime | None,
    data: Mapping[str, Any] | None,
) -> AuditEntry:
    who = origin()
    kind, identity, name = target if len(target) == 3 else (*target, "")
    return AuditEntry(
        at=at or clock.now(), action=action, actor_kind=who.actor_kind, actor_id=who.actor_id,
        actor_name=who.actor_name[:120], token_id=who.token_id, address=who.address[:64],
        request_id=who.request_id, project=who.project_id if project is None else project, target_kind=kind,
        target_id=identity[:200], target_name=name[:200], message=message, data=dict(data or {}),
    )  # fmt: skip


# --- the chain --------------------------------------------------------------------------------------------


def columns(entry: AuditEntry) -> dict[str, Any]:
    """All of an entry that its hash covers, as it comes from the database."""
    return {
        "id": entry.pk, "at": entry.at.isoformat(), "action": entry.action, "actor_kind": entry.actor_kind,
        "actor_id": entry.actor_id, "actor_name": entry.actor_name, "token_id": entry.token_id,
        "address": entry.address, "request_id": entry.request_id, "project": entry.project,
        "target_kind": entry.target_kind, "target_id": entry.target_id, "target_name": entry.target_name,
        "message": entry.message, "data": entry.data, "number": entry.number,
    }  # fmt: skip


def link(previous: str, covered: Mapping[str, Any]) -> str:
    """SHA-256 of the hash before, a line end, and the columns as JSON with sorted keys and no spaces."""
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def append_to_chain() -> int:
    """Give the entries that have none their place in their project's chain. Safe to run twice at once."""
    sealed = 0
    with transaction.atomic():
        transaction_lock(LockClass.AUDIT_SEAL)
        heads: dict[str, tuple[int, str]] = {}
        for entry in AuditEntry.objects.filter(number=None).order_by("pk")[:SEALED_AT_ONCE]:
            number, previous = heads.get(entry.project) or head(entry.project)
            entry.number = number + 1
            entry.sha256 = link(previous, columns(entry))
            entry.save(update_fields=["number", "sha256"])
            heads[entry.project] = (entry.number, entry.sha256)
            sealed += 1
    return sealed


def head(project: str) -> tuple[int, str]:
    """Number and hash of the chain's last link."""
    newest = AuditEntry.objects.filter(project=project).aggregate(number=Max("number"))["number"]
    if newest is None:
        return 0, GENESIS
    return newest, AuditEntry.objects.get(project=project, number=newest).sha256


@dataclass(frozen=True)
class ChainReport:
    project: str
    entries: int  # that hold, from the first on
    head: str  # hash of the last one that holds; note it elsewhere, and a cut at the end shows
    broken: str = ""  # what is wrong with the next one; "" when the whole chain holds


CHECKED_AT_ONCE = 5000


@dataclass(frozen=True)
class ChainState:
    """The end of a project's chain."""

    number: int  # of the newest entry in the chain; 0: none
    sha256: str  # of that entry; note it elsewhere, and a cut at the end shows
    unsealed: int  # entries that join the chain within moments
    checked: int  # newest entries that were verified
    broken: str  # what is wrong with the first of them that does not hold; "" when they hold


def chain_state(project: str) -> ChainState:
    """Verify the newest entries of a project's chain, as many as one request may read."""
    number, sha256 = head(project)
    first = max(1, number - CHECKED_AT_ONCE + 1)
    before = AuditEntry.objects.filter(project=project, number=first - 1).first()
    report = _verify_chain(project, after=first - 1, previous=before.sha256 if before else GENESIS)
    waiting = AuditEntry.objects.filter(project=project, number=None).count()
    return ChainState(number, sha256, waiting, report.entries - first + 1, report.broken)


def verify() -> Iterator[ChainReport]:
    """Every chain, link by link."""
    projects = AuditEntry.objects.exclude(number=None).values_list("project", flat=True)
    for project in projects.distinct().order_by("project"):
        yield _verify_chain(project)


def _verify_chain(project: str, *, after: int = 0, previous: str = GENESIS) -> ChainReport:
    count = after
    chain = AuditEntry.objects.filter(project=project, number__gt=after).order_by("number")
    for entry in chain.iterator(chunk_size=2000):
        if entry.number != count + 1:
            return ChainReport(project, count, previous, f"entry number {count + 1} is missing")
        if link(previous, columns(entry)) != entry.sha256:
            return ChainReport(
                project, count, previous,
                f"entry number {entry.number} (id {entry.pk}, {entry.action} at {entry.at.isoformat()}) "
                "is not what was sealed",
            )  # fmt: skip
        count, previous = count + 1, entry.sha256
    return ChainReport(project, count, previous)
