from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import PAGE_PARAMETERS, page_of
from control_plane.core.infra import clock
from control_plane.experiments import saved_views
from control_plane.experiments.saved_views import view_as_json


class RunViewFormSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120)
    query = serializers.DictField(help_text="parameters of the run list: a text, or a list of texts, each")
    shared = serializers.BooleanField(
        required=False, help_text="the whole project sees it; only its owner changes it"
    )


class RunViewPatchSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120, required=False)
    query = serializers.DictField(required=False)
    shared = serializers.BooleanField(required=False)

    not_empty = True


class RunViewSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    query = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))
    shared = serializers.BooleanField()
    owner = serializers.CharField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class SavedViewsView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:read"}

    @extend_schema(
        operation_id="list_saved_views", parameters=PAGE_PARAMETERS, responses=page_of(RunViewSerializer)
    )
    def get(self, request: Request) -> Response:
        """List saved views.

        Saved filters and columns of the run list: yours, and those that others share.
        """
        return Response(paginate(saved_views.views(caller_of(request)), read_page(request), view_as_json))

    @extend_schema(
        operation_id="create_saved_view", request=RunViewFormSerializer, responses={201: RunViewSerializer}
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a saved view.

        The query of the run list under a name, for you or for everybody in the project.
        """
        form = RunViewFormSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        view = saved_views.create_view(caller_of(request), **form.validated_data, now=clock.now())
        return Response(view_as_json(view), status=201)


class SavedViewView(ApiView):
    scopes = {"GET": "runs:read", "PATCH": "runs:read", "DELETE": "runs:read"}

    @extend_schema(operation_id="get_saved_view", responses=RunViewSerializer)
    def get(self, request: Request, view_id: str) -> Response:
        """Get a saved view.

        Its name and query.
        """
        return Response(view_as_json(saved_views.view_for(caller_of(request), view_id)))

    @extend_schema(
        operation_id="update_saved_view", request=RunViewPatchSerializer, responses=RunViewSerializer
    )
    def patch(self, request: Request, view_id: str) -> Response:
        """Change a saved view.

        Only its owner changes a view.
        """
        saved_views.view_for(caller_of(request), view_id)
        form = RunViewPatchSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        view = saved_views.update_view(caller_of(request), view_id, form.validated_data, now=clock.now())
        return Response(view_as_json(view))

    @extend_schema(
        operation_id="delete_saved_view", responses={204: OpenApiResponse(description="it is gone")}
    )
    def delete(self, request: Request, view_id: str) -> Response:
        """Delete a saved view.

        Only its owner deletes a view.
        """
        saved_views.delete_view(caller_of(request), view_id)
        return Response(status=204)
