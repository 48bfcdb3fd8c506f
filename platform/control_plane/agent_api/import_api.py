"""Endpoints for agents that import a model from a hub: begin, report progress, upload, fail."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.agent_api.job_api import NodeView
from control_plane.assets.base_models import import_services as services
from control_plane.assets.storage import multipart
from control_plane.core.api.request_parsing import body_of
from control_plane.core.api.schema import PART_SHA256
from control_plane.core.infra import clock
from control_plane.fleet.access import teams_of
from control_plane.fleet.authentication import node_of
from oolong.contracts.agent import UploadReply
from oolong.contracts.model_imports import ImportOrder, ImportProgress


class ImportProgressSerializer(serializers.Serializer[Any]):
    bytes_done = serializers.IntegerField(min_value=0, max_value=2**62, required=False, default=0)
    bytes_total = serializers.IntegerField(min_value=0, max_value=2**62, required=False, default=0)


class ImportFailureSerializer(serializers.Serializer[Any]):
    message = serializers.CharField(max_length=10_000)


class ImportUploadSerializer(serializers.Serializer[Any]):
    commit = serializers.CharField(max_length=1000, allow_blank=True)  # an invalid commit fails the import
    tar_sha256 = serializers.RegexField(r"^[0-9a-f]{64}$")
    bytes = serializers.IntegerField(min_value=1)


class ImportBeginView(NodeView):
    @extend_schema(operation_id="agent_begin_import", request=None, responses={200: ImportOrder})
    def post(self, request: Request, import_id: str) -> Response:
        """Begin a model import.

        Assigns the import to the node. The response names the model and the credentials to fetch it with.
        """
        node = node_of(request)
        order = services.begin(
            node.pk, import_id, teams_of(node.pool_id), takes_work=node.takes_work, now=clock.now()
        )
        return Response(msgspec.to_builtins(order))


class ImportProgressView(NodeView):
    @extend_schema(
        operation_id="agent_report_import",
        request=ImportProgressSerializer,
        responses={200: OpenApiTypes.OBJECT},
    )
    def post(self, request: Request, import_id: str) -> Response:
        """Report the progress of a model import.

        Reports how many bytes were fetched. The answer says whether the import was canceled.
        """
        fields = body_of(ImportProgressSerializer, request)
        progress = ImportProgress(**fields)
        services.report(node_of(request).pk, import_id, progress, now=clock.now())
        return Response({})


class ImportFailedView(NodeView):
    @extend_schema(
        operation_id="agent_fail_import",
        request=ImportFailureSerializer,
        responses={200: OpenApiTypes.OBJECT},
    )
    def post(self, request: Request, import_id: str) -> Response:
        """Report that a model import failed.

        Ends the import with the message, which its owner sees.
        """
        fields = body_of(ImportFailureSerializer, request)
        services.fail(node_of(request).pk, import_id, fields["message"], now=clock.now())
        return Response({})


class ImportUploadsView(NodeView):
    @extend_schema(
        operation_id="agent_begin_import_upload",
        request=ImportUploadSerializer,
        responses={200: UploadReply},
    )
    def post(self, request: Request, import_id: str) -> Response:
        """Begin the upload of an imported model.

        Names the commit and the size of what was fetched. The response lists the received parts.
        """
        fields = body_of(ImportUploadSerializer, request)
        reply = services.begin_upload(node_of(request).pk, import_id, now=clock.now(), **fields)
        return Response(msgspec.to_builtins(reply))


class ImportPartView(NodeView):
    @extend_schema(
        operation_id="agent_put_import_part",
        parameters=[PART_SHA256],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: OpenApiTypes.OBJECT},
    )
    def put(self, request: Request, import_id: str, number: int) -> Response:
        """Upload a part of an imported model.

        Parts may be sent in any order and again.
        """
        data = request._request.read(multipart.LARGE_PART_BYTES + 1)
        services.put_part(
            node_of(request).pk, import_id, number, data, sha256=request.headers.get("X-Part-SHA256"),
            now=clock.now(),
        )  # fmt: skip
        return Response({})


class ImportCompleteView(NodeView):
    @extend_schema(operation_id="agent_complete_import", request=None, responses={200: OpenApiTypes.OBJECT})
    def post(self, request: Request, import_id: str) -> Response:
        """Complete a model import.

        All parts are uploaded; the control plane joins and checks them.
        """
        asked = services.complete(node_of(request).pk, import_id)
        return Response({"state": str(asked.state), "message": asked.message})
