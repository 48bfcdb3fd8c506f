from __future__ import annotations

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import PAGE_PARAMETERS, page_of
from control_plane.core.infra import clock
from control_plane.experiments import saved_views


class SavedViewFormSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120)
    query = serializers.DictField(
        help_text="query parameters of the run list: a string or a list of strings each"
    )
    shared = serializers.BooleanField(
        required=False, help_text="visible to the whole project; only its owner can change it"
    )


class SavedViewPatchSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120, required=False)
    query = serializers.DictField(required=False)
    shared = serializers.BooleanField(required=False)

    not_empty = True


class RunViewSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    query = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))
    shared = serializers.BooleanField()
    owner = serializers.CharField(source="owner.username")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class SavedViewsView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:read"}

    @extend_schema(
        operation_id="list_saved_views", parameters=PAGE_PARAMETERS, responses=page_of(RunViewSerializer)
    )
    def get(self, request: Request) -> Response:
        """List saved views.

        Saved queries of the run list: yours, and those that others share.
        """
        return Response(
            paginate(saved_views.views(caller_of(request)), read_page(request), RunViewSerializer.render)
        )

    @extend_schema(
        operation_id="create_saved_view", request=SavedViewFormSerializer, responses={201: RunViewSerializer}
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a saved view.

        A named query of the run list, for you or for everyone in the project.
        """
        fields = body_of(SavedViewFormSerializer, request)
        view = saved_views.create_view(caller_of(request), **fields, now=clock.now())
        return Response(RunViewSerializer.render(view), status=201)


class SavedViewView(ApiView):
    scopes = {"GET": "runs:read", "PATCH": "runs:read", "DELETE": "runs:read"}

    @extend_schema(operation_id="get_saved_view", responses=RunViewSerializer)
    def get(self, request: Request, view_id: str) -> Response:
        """Get a saved view.

        Its name and query.
        """
        return Response(RunViewSerializer.render(saved_views.view_for(caller_of(request), view_id)))

    @extend_schema(
        operation_id="update_saved_view", request=SavedViewPatchSerializer, responses=RunViewSerializer
    )
    def patch(self, request: Request, view_id: str) -> Response:
        """Change a saved view.

        Only its owner changes a view.
        """
        saved_views.view_for(caller_of(request), view_id)
        fields = body_of(SavedViewPatchSerializer, request)
        view = saved_views.update_view(caller_of(request), view_id, fields, now=clock.now())
        return Response(RunViewSerializer.render(view))

    @extend_schema(operation_id="delete_saved_view", responses={204: OpenApiResponse(description="deleted")})
    def delete(self, request: Request, view_id: str) -> Response:
        """Delete a saved view.

        Only its owner deletes a view.
        """
        saved_views.delete_view(caller_of(request), view_id)
        return Response(status=204)
