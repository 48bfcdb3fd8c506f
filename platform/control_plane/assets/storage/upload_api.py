"""Uploads in parts: start, part by part with a checksum, status, complete, abort."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.assets import selectors
from control_plane.assets.api import BINARY, UploadSerializer, need_scope_of
from control_plane.assets.models import UploadSession
from control_plane.assets.storage import multipart
from control_plane.assets.storage import upload_services as services
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import PART_SHA256


class SessionBeginSerializer(StrictSerializer):
    filename = serializers.CharField(max_length=1000)
    purpose = serializers.ChoiceField(choices=["dataset", "model"])
    bytes = serializers.IntegerField(  # at most: 413 by its purpose
        min_value=1, error_messages={"min_value": "a file has at least 1 byte"}
    )
    sha256 = serializers.RegexField(
        r"^([0-9a-f]{64})?$", required=False, allow_blank=True, default="",
        help_text="of the whole; verified when complete",
    )  # fmt: skip
    fingerprint = serializers.CharField(
        max_length=200, required=False, default="", allow_blank=True,
        help_text="any text by which an unfinished session is found again when no sha256 is given",
    )  # fmt: skip


class UploadSessionSerializer(ResponseSerializer):
    id = serializers.CharField()
    filename = serializers.CharField()
    purpose = serializers.CharField()
    bytes = serializers.IntegerField()
    part_bytes = serializers.IntegerField(help_text="size of every part but the last")
    part_count = serializers.IntegerField()
    received_parts = serializers.ListField(child=serializers.IntegerField())
    upload = UploadSerializer(allow_null=True, help_text="what it became, once complete")
    created_at = serializers.DateTimeField()


def _own(request: Request, session_id: str) -> tuple[Caller, UploadSession]:
    caller = caller_of(request)
    session = selectors.upload_session_for(caller, session_id)
    need_scope_of(caller, session.purpose)
    return caller, session


class UploadSessionsView(ApiView):
    scopes = {"POST": None}  # by purpose

    @idempotent
    @endpoint(
        "begin_upload_session",
        body=SessionBeginSerializer,
        returns=UploadSessionSerializer,
        existing="your unfinished session for this file",
    )
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Begin an upload in parts.

        For large files and unreliable networks. An unfinished session of the same file is found again (200),
        and a file that is here already needs no bytes.
        """
        caller = caller_of(request)
        need_scope_of(caller, fields["purpose"])
        return services.begin_session(caller, **fields)


class UploadSessionView(ApiView):
    scopes = {"GET": None, "DELETE": None}

    @endpoint("get_upload_session", returns=UploadSessionSerializer)
    def get(self, request: Request, session_id: str) -> object:
        """Get an upload session.

        Which parts have arrived, and which are missing.
        """
        return _own(request, session_id)[1]

    @endpoint("abort_upload_session")
    def delete(self, request: Request, session_id: str) -> None:
        """Abort an upload session.

        Deletes its parts.
        """
        services.abort_session(_own(request, session_id)[1])


class UploadSessionPartView(ApiView):
    scopes = {"PUT": None}

    @extend_schema(
        operation_id="put_upload_session_part",
        parameters=[PART_SHA256],
        request=BINARY,
        responses=UploadSessionSerializer,
    )
    def put(self, request: Request, session_id: str, number: int) -> Response:
        """Upload a part.

        Parts may be sent in any order and again. X-Part-SHA256 is compared when it is sent.
        """
        _, session = _own(request, session_id)
        data = request._request.read(multipart.size_for(session.bytes) + 1)
        services.put_part(session, number, data, sha256=request.headers.get("X-Part-SHA256"))
        return Response(UploadSessionSerializer.render(session))


class UploadSessionCompleteView(ApiView):
    scopes = {"POST": None}

    @endpoint("complete_upload_session", returns=UploadSerializer)
    def post(self, request: Request, session_id: str) -> object:
        """Complete an upload session.

        Joins the parts and compares the result with the announced SHA-256.
        """
        _, session = _own(request, session_id)
        return services.complete_session(session)
