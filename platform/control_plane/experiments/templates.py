"""Run templates: named parts of a spec in immutable versions, for a project or a team.

A run of template `name@2` (or `name`, its newest version) merges its own spec over the template. Presets can be named
in the same way.
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
from control_plane.experiments.models import RunTemplate, RunTemplateVersion
from control_plane.experiments.presets import presets
from control_plane.runs.cloning import merge_spec
from oolong.contracts.run_spec import spec_errors

# Section and two fields of it that exclude each other.
EXCLUSIVE_FIELDS = (
    ("model", "base_model", "checkpoint"),
    ("reward", "name", "function"),
    ("workflow", "name", "function"),
)


def templates(caller: Caller) -> QuerySet[RunTemplate]:
    """Templates of the project and of its team."""
    scope = Q(project=caller.project) | Q(project=None)
    found = RunTemplate.objects.filter(scope, team=caller.project.team_id)
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
    """Create a template with its first version. 422 with pointers for an invalid spec; 409 for a name in use."""
    _require_valid(spec)
    _require_team_admin(caller, for_team)
    try:
        with transaction.atomic():
            template = RunTemplate.objects.create(
                team=caller.project.team, project=None if for_team else caller.project, name=name,
                description=description, created_by=caller.user, created_at=now,
            )  # fmt: skip
            _add(caller, template, 1, spec, now=now)
    except IntegrityError as error:
        raise conflict("name_taken", f"a template {name!r} exists already; add a version to it") from error
    return template


def add_version(caller: Caller, template_id: str, spec: Mapping[str, Any], *, now: datetime) -> RunTemplate:
    _require_valid(spec)
    with transaction.atomic():
        template = RunTemplate.objects.select_for_update().get(pk=template_id)
        _require_team_admin(caller, template.of_team)
        newest = template.versions.order_by("-number").first()
        _add(caller, template, newest.number + 1 if newest else 1, spec, now=now)
    return template


def delete_template(caller: Caller, template_id: str, *, now: datetime) -> None:
    """Delete a template. Runs created from it keep their specs."""
    with transaction.atomic():
        template = RunTemplate.objects.select_for_update().get(pk=template_id)
        _require_team_admin(caller, template.of_team)
        _record("delete", caller, template, now=now)
        template.delete()


def with_template(caller: Caller, reference: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The template's spec with `spec` merged over it (RFC 7396). 422 when there is no such template.

    Of two exclusive fields the one in `spec` wins: `model: {checkpoint}` replaces the template's base_model.
    """
    found = find_template_spec(caller, reference) if isinstance(reference, str) else None
    if found is None:
        message = f"there is no template {reference!r}; name@2 or name of a template or preset"
        raise unprocessable("invalid", message, [FieldError("/template", "unknown_template", message)])
    return merge_spec(_drop_excluded(found, spec), dict(spec))


def _drop_excluded(template: dict[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The template's spec without fields that exclude a field in `spec`."""
    result = dict(template)
    for section, one, other in EXCLUSIVE_FIELDS:
        own, inherited = spec.get(section), result.get(section)
        if not isinstance(own, dict) or not isinstance(inherited, dict):
            continue
        for named, replaced in ((one, other), (other, one)):
            if own.get(named) is not None and own.get(replaced) is None:
                # Options belong to the replaced name or function.
                dropped = (
                    {replaced}
                    if section == "model" or inherited.get(replaced) is None
                    else {replaced, "options"}
                )
                result[section] = {name: value for name, value in inherited.items() if name not in dropped}
    return result


def find_template_spec(caller: Caller, reference: str) -> dict[str, Any] | None:
    """The spec of the project's template, else the team's, else a preset. 422 for an invalid preset."""
    name, at, number = reference.partition("@")
    if at and not (number.isdecimal() and len(number) < 10):
        return None
    for template in sorted(templates(caller).filter(name=name), key=lambda found: found.of_team):
        versions = {version.number: version for version in template.versions.all()}
        version = versions.get(int(number)) if at else versions[max(versions)]
        return dict(version.spec) if version is not None else None
    if at:
        return None
    known = presets(settings.ENVIRONMENT.data_dir)
    if name in known.errors:
        message = f"the preset {name!r} cannot be used: {known.errors[name]}"
        raise unprocessable("invalid", message, [FieldError("/template", "preset_unusable", message)])
    return next((dict(preset.spec) for preset in known.usable if preset.name == name), None)


def _add(
    caller: Caller, template: RunTemplate, number: int, spec: Mapping[str, Any], *, now: datetime
) -> None:
    RunTemplateVersion.objects.create(
        template=template, number=number, spec=dict(spec), created_by=caller.user, created_at=now
    )
    _record("create" if number == 1 else "add_version", caller, template, now=now)


def _require_valid(spec: Mapping[str, Any]) -> None:
    """422 for invalid fields; missing ones come from the run."""
    dataset = spec.get("dataset", {})
    document = {"name": "template", "model": {"base_model": "any"}, **spec}
    document["dataset"] = {"version": "any@1", **dataset} if isinstance(dataset, dict) else dataset
    errors = [
        FieldError(f"/spec{error.pointer}", error.code, error.message) for error in spec_errors(document)
    ]
    if errors:
        raise unprocessable("spec_invalid", f"{errors[0].pointer}: {errors[0].message}", errors)


def _require_team_admin(caller: Caller, for_team: bool) -> None:
    if for_team and "team:admin" not in caller.scopes:
        raise Problem(403, "missing_scope", "a template for the whole team requires the scope team:admin")


def _record(verb: str, caller: Caller, template: RunTemplate, *, now: datetime) -> None:
    audit_log.record(
        f"template.{verb}", target=("template", template.pk, template.name), project=caller.project.pk, at=now
    )
