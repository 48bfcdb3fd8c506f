from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import prefetch_related_objects
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.schema_run_spec import RunSpecPartField
from control_plane.core.infra import clock
from control_plane.experiments import templates


class TemplateFormSerializer(StrictSerializer):
    name = name_field(r"^[a-z0-9][a-z0-9-]*$", "small letters, digits and -", max_length=61)
    description = serializers.CharField(max_length=2000, required=False, allow_blank=True)
    spec = RunSpecPartField(help_text="a part of a RunSpec; a run that names the template adds the rest")
    for_team = serializers.BooleanField(required=False, help_text="for every project of the team")


class TemplateVersionFormSerializer(StrictSerializer):
    spec = RunSpecPartField(help_text="a part of a RunSpec; a run that names the template adds the rest")


class TemplateVersionSerializer(ResponseSerializer):
    number = serializers.IntegerField()
    spec = RunSpecPartField()
    created_at = serializers.DateTimeField()


class TemplateSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    ref = serializers.CharField(help_text="name@3: its newest version")
    description = serializers.CharField()
    of_team = serializers.BooleanField()
    spec = RunSpecPartField(source="newest.spec", help_text="of the newest version")
    versions = TemplateVersionSerializer(source="ordered_versions", many=True)
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()

    @classmethod
    def prefetch(cls, rows: Sequence[Any]) -> None:
        prefetch_related_objects(rows, "versions")


class TemplatesView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @endpoint("list_run_templates", page=TemplateSerializer)
    def get(self, request: Request) -> object:
        """List run templates.

        Templates of the project and the team.
        """
        return templates.templates(caller_of(request))

    @idempotent
    @endpoint("create_run_template", body=TemplateFormSerializer, returns=TemplateSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a run template.

        A spec under a name, for this project or for the whole team.
        """
        return templates.create_template(caller_of(request), **fields, now=clock.now())


class TemplateView(ApiView):
    scopes = {"GET": "runs:read", "DELETE": "runs:write"}

    @endpoint("get_run_template", returns=TemplateSerializer)
    def get(self, request: Request, template_id: str) -> object:
        """Get a run template.

        The template with its versions.
        """
        return templates.template_for(caller_of(request), template_id)

    @endpoint("delete_run_template")
    def delete(self, request: Request, template_id: str) -> None:
        """Delete a run template.

        Runs that were made from it stay.
        """
        caller = caller_of(request)
        templates.delete_template(caller, templates.template_for(caller, template_id).pk, now=clock.now())


class TemplateVersionsView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint(
        "add_run_template_version", body=TemplateVersionFormSerializer, returns=TemplateSerializer, status=201
    )
    def post(self, request: Request, template_id: str) -> object:
        """Add a version to a template.

        New runs use the newest version unless they name another.
        """
        caller = caller_of(request)
        found = templates.template_for(caller, template_id)
        fields = body_of(TemplateVersionFormSerializer, request)
        templates.add_version(caller, found.pk, fields["spec"], now=clock.now())
        return templates.template_for(caller, template_id)
