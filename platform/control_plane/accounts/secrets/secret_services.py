"""Every write to project secrets, and the one way to their values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from django.db import transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import ProjectSecret
from control_plane.core.api.errors import FieldError, conflict, or_not_found, unprocessable
from control_plane.core.infra.locks import LockClass, transaction_lock
from control_plane.core.security.encryption import (
    DecryptionError,
    Sealed,
    decrypt,
    encrypt,
    fingerprint,
    newest_key_id,
)
from oolong.redaction import SHORTEST

NAME = r"[A-Z][A-Z0-9_]{0,63}"
MOST_BYTES = 16 * 1024
MOST_SECRETS = 200


def set_secret(
    caller: Caller,
    *,
    name: str,
    value: str,
    hosts: Sequence[str] = (),
    jobs: Sequence[str] = (),
    now: datetime,
) -> tuple[ProjectSecret, bool]:
    """Keep a value under a name, instead of the one before. The row, and whether it is a new name."""
    if not 1 <= len(value.encode()) <= MOST_BYTES:
        message = f"a secret has 1 to {MOST_BYTES} bytes"
        raise unprocessable("invalid", message, [FieldError("/value", "length", message)])
    if jobs and len(value.strip()) < SHORTEST:
        message = (
            f"a secret for jobs has at least {SHORTEST} characters: it is taken out of their logs, and a shorter one "
            "would take ordinary words along"
        )
        raise unprocessable("invalid", message, [FieldError("/value", "too_short", message)])
    sealed = encrypt(value, place=_place(caller.project.pk, name))
    fields = {
        "sealed": sealed.sealed, "key_id": sealed.key_id, "hosts": sorted({host.lower() for host in hosts}),
        "jobs": sorted(set(jobs)), "updated_at": now,
        "fingerprint": fingerprint(value, place=_place(caller.project.pk, name)),
    }  # fmt: skip
    with transaction.atomic():
        transaction_lock(LockClass.QUOTA, f"secrets {caller.project.pk}")
        row = ProjectSecret.objects.select_for_update().filter(project=caller.project, name=name).first()
        if row is None and ProjectSecret.objects.filter(project=caller.project).count() >= MOST_SECRETS:
            raise conflict("too_many", f"a project has at most {MOST_SECRETS} secrets; delete one first")
        before = row.fingerprint if row else None
        row, created = ProjectSecret.objects.update_or_create(
            project=caller.project, name=name, defaults=fields,
            create_defaults={**fields, "created_by": caller.user, "created_at": now},
        )  # fmt: skip
        audit_log.record(
            "secret.set", target=("secret", row.pk, name), at=now,
            data={"before": before, "after": row.fingerprint, "hosts": row.hosts, "jobs": row.jobs},
        )  # fmt: skip
    return row, created


def delete_secret(caller: Caller, name: str, *, now: datetime) -> None:
    with transaction.atomic():
        row = or_not_found(
            ProjectSecret.objects.select_for_update().filter(project=caller.project, name=name).first(),
            "secret",
            name,
        )
        audit_log.record("secret.delete", target=("secret", row.pk, name), at=now)
        row.delete()


def for_jobs(project_id: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Those of the names that the project has a secret of, each with the kinds of jobs that an admin allowed."""
    return dict(
        ProjectSecret.objects.filter(project_id=project_id, name__in=names).values_list("name", "jobs")
    )


def for_hosts(project_id: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Those of the names that the project has a secret of, each with the hosts that it may be sent to."""
    return dict(
        ProjectSecret.objects.filter(project_id=project_id, name__in=names).values_list("name", "hosts")
    )


def host_error(name: str, url: str, hosts: Sequence[str]) -> str:
    """Why a secret must not be sent to the host of `url`; "" when it may."""
    host, address = _host_of(url)
    if {host, address} & set(hosts):
        return ""
    return (
        f"the secret {name} is not for {address!r} but for {', '.join(hosts) or 'no host'}; an admin can "
        f"change that: oolong secret set {name} --host {host or 'HOST'}"
    )


def missing(project_id: str, names: Sequence[str]) -> list[str]:
    """Those of the names that the project has no secret of."""
    known = ProjectSecret.objects.filter(project_id=project_id, name__in=names).values_list("name", flat=True)
    return sorted(set(names) - set(known))


def reveal(project_id: str, names: Sequence[str], *, for_what: str, now: datetime) -> dict[str, str]:
    """The values, for the job that names them and for nothing else. 422 for a name that is not kept."""
    if unknown := missing(project_id, names):
        message = f"the project has no secret {', '.join(unknown)}; set it: oolong secret set NAME"
        raise unprocessable("unknown_secret", message, [FieldError("/secret", "unknown_secret", message)])
    values = {}
    with transaction.atomic():
        for row in ProjectSecret.objects.filter(project_id=project_id, name__in=names):
            try:
                values[row.name] = decrypt(
                    Sealed(row.key_id, bytes(row.sealed)), place=_place(project_id, row.name)
                )
            except DecryptionError as error:
                raise conflict("secret_invalid", f"the secret {row.name}: {error}") from error
            ProjectSecret.objects.filter(pk=row.pk).update(last_used_at=now)
            audit_log.record(
                "secret.use", target=("secret", row.pk, row.name), project=project_id, at=now,
                message=for_what,
            )  # fmt: skip
    return values


def reveal_for_host(project_id: str, name: str, *, url: str, now: datetime) -> str:
    """A secret that is sent to the host of `url`. Whoever may import could else have it sent to himself."""
    row = ProjectSecret.objects.filter(project_id=project_id, name=name).first()
    if row is not None and (message := host_error(name, url, row.hosts)):
        raise unprocessable(
            "secret_not_for_host", message, [FieldError("/secret", "secret_not_for_host", message)]
        )
    return reveal(project_id, [name], for_what=f"an import from {_host_of(url)[0]}", now=now)[name]


def _host_of(url: str) -> tuple[str, str]:
    """The host, and host:port, with the usual port where the URL has none. An admin may have named either."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port or {"http": 80}.get(parts.scheme, 443)
    except ValueError:
        return "", ""
    return host, f"{host}:{port}"


def rotate() -> int:
    """Seal and fingerprint everything with the newest key; how many had another. Safe to repeat and to break off."""
    changed = 0
    outdated = ProjectSecret.objects.exclude(key_id=newest_key_id()) | ProjectSecret.objects.filter(
        fingerprint=""
    )
    for identity in outdated.values_list("pk", flat=True):
        with transaction.atomic():
            row = ProjectSecret.objects.select_for_update().filter(pk=identity).first()
            if row is None:
                continue
            place = _place(row.project_id, row.name)
            value = decrypt(Sealed(row.key_id, bytes(row.sealed)), place=place)
            fresh = encrypt(value, place=place)
            row.sealed, row.key_id, row.fingerprint = (
                fresh.sealed,
                fresh.key_id,
                fingerprint(value, place=place),
            )
            row.save(update_fields=["sealed", "key_id", "fingerprint"])
            changed += 1
    return changed


def _place(project_id: str, name: str) -> str:
    return f"{project_id}/{name}"
