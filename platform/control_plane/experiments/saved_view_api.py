from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.infra import clock
from control_plane.experiments import saved_views


class ColumnsField(serializers.ListField):
    child = serializers.RegexField(r"^[a-z_]{1,40}$")


MAX_COLUMNS = 40
COLUMNS_HELP = (
    "columns of the run list that the dashboard shows with it; null: those that the reader has chosen"
)


class SavedViewFormSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120)
    query = serializers.DictField(
        help_text="query parameters of the run list: a string or a list of strings each"
    )
    shared = serializers.BooleanField(
        required=False, help_text="visible to the whole project; only its owner can change it"
    )
    columns = ColumnsField(required=False, allow_null=True, max_length=MAX_COLUMNS, help_text=COLUMNS_HELP)


class SavedViewPatchSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120, required=False)
    query = serializers.DictField(required=False)
    shared = serializers.BooleanField(required=False)
    columns = ColumnsField(required=False, allow_null=True, max_length=MAX_COLUMNS, help_text=COLUMNS_HELP)

    not_empty = True


class RunViewSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    query = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))
    shared = serializers.BooleanField()
    columns = ColumnsField(allow_null=True, help_text=COLUMNS_HELP)
    owner = serializers.CharField(source="owner.username")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class SavedViewsView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:read"}

    @endpoint("list_saved_views", page=RunViewSerializer)
    def get(self, request: Request) -> object:
        """List saved views.

        Saved queries of the run list: yours, and those that others share.
        """
        return saved_views.views(caller_of(request))

    @idempotent
    @endpoint("create_saved_view", body=SavedViewFormSerializer, returns=RunViewSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a saved view.

        A named query of the run list, for you or for everyone in the project.
        """
        return saved_views.create_view(caller_of(request), **fields, now=clock.now())


class SavedViewView(ApiView):
    scopes = {"GET": "runs:read", "PATCH": "runs:read", "DELETE": "runs:read"}

    @endpoint("get_saved_view", returns=RunViewSerializer)
    def get(self, request: Request, view_id: str) -> object:
        """Get a saved view.

        Its name and query.
        """
        return saved_views.view_for(caller_of(request), view_id)

    @endpoint("update_saved_view", body=SavedViewPatchSerializer, returns=RunViewSerializer)
    def patch(self, request: Request, view_id: str) -> object:
        """Change a saved view.

        Only its owner changes a view.
        """
        saved_views.view_for(caller_of(request), view_id)
        fields = body_of(SavedViewPatchSerializer, request)
        return saved_views.update_view(caller_of(request), view_id, fields, now=clock.now())

    @endpoint("delete_saved_view")
    def delete(self, request: Request, view_id: str) -> None:
        """Delete a saved view.

        Only its owner deletes a view.
        """
        saved_views.delete_view(caller_of(request), view_id)
