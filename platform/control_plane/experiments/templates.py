"""Templates: named parts of a spec, in versions that never change, of a project or of a whole team.

A run is made from `name@2` (or `name`, its newest version) with the rest of its spec merged over it. The presets that
come with Oolong can be named the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import FieldError, Problem, conflict, or_not_found, unprocessable
from control_plane.core.infra.clock import rfc3339
from control_plane.experiments.models import RunTemplate, RunTemplateVersion
from control_plane.experiments.presets import presets
from control_plane.runs.cloning import merge_patch
from oolong.contracts.run_spec import spec_errors

# Fields of a section that exclude each other.
ALTERNATIVES = (
    ("model", "base_model", "checkpoint"),
    ("reward", "name", "function"),
    ("workflow", "name", "function"),
)


def templates(caller: Caller) -> QuerySet[RunTemplate]:
    """The project's, and those of its team."""
    place = Q(project=caller.project) | Q(project=None)
    found = RunTemplate.objects.filter(place, team=caller.project.team_id)
    return found.select_related("created_by").prefetch_related("versions")


def template_for(caller: Caller, template_id: str) -> RunTemplate:
    return or_not_found(templates(caller).filter(pk=template_id).first(), "template", template_id)


def create_template(
    caller: Caller,
    *,
    name: str,
    spec: Mapping[str, Any],
    description: str = "",
    for_team: bool = False,
    now: datetime,
) -> RunTemplate:
    """A template with its first version. 422 with pointers for what no spec could hold; 409 for a name in use."""
    _refuse_faulty(spec)
    _need_team(caller, for_team)
    try:
        with transaction.atomic():
            template = RunTemplate.objects.create(
                team=caller.project.team, project=None if for_team else caller.project, name=name,
                description=description, created_by=caller.user, created_at=now,
            )  # fmt: skip
            _add(caller, template, 1, spec, now=now)
    except IntegrityError as error:
        raise conflict("name_taken", f"there is a template {name!r} already; add a version to it") from error
    return template


def add_version(caller: Caller, template_id: str, spec: Mapping[str, Any], *, now: datetime) -> RunTemplate:
    _refuse_faulty(spec)
    with transaction.atomic():
        template = RunTemplate.objects.select_for_update().get(pk=template_id)
        _need_team(caller, template.project_id is None)
        newest = template.versions.order_by("-number").first()
        _add(caller, template, newest.number + 1 if newest else 1, spec, now=now)
    return template


def delete_template(caller: Caller, template_id: str, *, now: datetime) -> None:
    """Runs that were made from it keep their specs."""
    with transaction.atomic():
        template = RunTemplate.objects.select_for_update().get(pk=template_id)
        _need_team(caller, template.project_id is None)
        _record("delete", caller, template, now=now)
        template.delete()


def with_template(caller: Caller, reference: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The template's spec with `spec` merged over it (RFC 7396). 422 when there is no such template.

    Of fields that exclude each other the one in `spec` counts: `model: {checkpoint}` takes the place of the template's
    base_model.
    """
    found = find_spec(caller, reference) if isinstance(reference, str) else None
    if found is None:
        message = f"there is no template {reference!r}; name@2 or name of a template or preset"
        raise unprocessable("invalid", message, [FieldError("/template", "unknown_template", message)])
    merged: dict[str, Any] = merge_patch(_without_alternatives(found, spec), dict(spec))
    return merged


def _without_alternatives(template: dict[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The template's spec without what excludes a field that `spec` names itself."""
    kept = dict(template)
    for section, one, other in ALTERNATIVES:
        asked, there = spec.get(section), kept.get(section)
        if not isinstance(asked, dict) or not isinstance(there, dict):
            continue
        for named, replaced in ((one, other), (other, one)):
            if asked.get(named) is not None and asked.get(replaced) is None:
                # Options are of the function that they stand beside.
                dropped = (
                    {replaced} if section == "model" or there.get(replaced) is None else {replaced, "options"}
                )
                kept[section] = {name: value for name, value in there.items() if name not in dropped}
    return kept


def find_spec(caller: Caller, reference: str) -> dict[str, Any] | None:
    """Of the project's template of that name, else the team's, else a preset. 422 for one that cannot be used."""
    name, at, number = reference.partition("@")
    if at and not (number.isdecimal() and len(number) < 10):
        return None
    for template in sorted(templates(caller).filter(name=name), key=lambda found: found.project_id is None):
        versions = {version.number: version for version in template.versions.all()}
        version = versions.get(int(number)) if at else versions[max(versions)]
        return dict(version.spec) if version is not None else None
    if at:
        return None
    known = presets(settings.ENVIRONMENT.data_dir)
    if name in known.faults:
        message = f"the preset {name!r} cannot be used: {known.faults[name]}"
        raise unprocessable("invalid", message, [FieldError("/template", "preset_unusable", message)])
    return next((dict(preset.spec) for preset in known.usable if preset.name == name), None)


def template_as_json(template: RunTemplate) -> dict[str, Any]:
    versions = sorted(template.versions.all(), key=lambda version: version.number)
    return {
        "id": template.pk,
        "name": template.name,
        "ref": f"{template.name}@{versions[-1].number}",
        "description": template.description,
        "of_team": template.project_id is None,
        "spec": versions[-1].spec,
        "versions": [
            {"number": version.number, "spec": version.spec, "created_at": rfc3339(version.created_at)}
            for version in versions
        ],
        "created_by": template.created_by.username,
        "created_at": rfc3339(template.created_at),
    }


def _add(
    caller: Caller, template: RunTemplate, number: int, spec: Mapping[str, Any], *, now: datetime
) -> None:
    RunTemplateVersion.objects.create(
        template=template, number=number, spec=dict(spec), created_by=caller.user, created_at=now
    )
    _record("create" if number == 1 else "add_version", caller, template, now=now)


def _refuse_faulty(spec: Mapping[str, Any]) -> None:
    """What is there must be right; what is left open is filled in by the run."""
    dataset = spec.get("dataset", {})
    whole = {"name": "template", "model": {"base_model": "any"}, **spec}
    whole["dataset"] = {"version": "any@1", **dataset} if isinstance(dataset, dict) else dataset
    faults = [FieldError(f"/spec{fault.pointer}", fault.code, fault.message) for fault in spec_errors(whole)]
    if faults:
        raise unprocessable("spec_invalid", f"{faults[0].pointer}: {faults[0].message}", faults)


def _need_team(caller: Caller, for_team: bool) -> None:
    if for_team and "team:admin" not in caller.scopes:
        raise Problem(403, "missing_scope", "a template of the whole team needs the scope team:admin")


def _record(verb: str, caller: Caller, template: RunTemplate, *, now: datetime) -> None:
    audit_log.record(
        f"template.{verb}", target=("template", template.pk, template.name), project=caller.project.pk, at=now
    )
