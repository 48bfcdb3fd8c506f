"""Endpoints for GPU agents: enrollment, heartbeat, inputs and checkpoint uploads (contracts.agent)."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions, serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

import oolong
from control_plane.accounts.identity.authentication import bearer
from control_plane.agent_api import services as services
from control_plane.assets.base_models.import_services import imports_for
from control_plane.assets.base_models.model_check_services import checks_for
from control_plane.assets.storage import multipart, store
from control_plane.assets.storage.blob_response import blob_response
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import Problem, not_found, unprocessable
from control_plane.core.api.numbers import parse_int
from control_plane.core.api.request_parsing import body_of
from control_plane.core.api.schema import PART_SHA256
from control_plane.core.infra import clock
from control_plane.fleet import services as fleet
from control_plane.fleet.access import teams_of
from control_plane.fleet.authentication import IsNode, NodeAuthentication, node_of
from control_plane.fleet.models import Node
from oolong.contracts.agent import (
    PROTOCOL,
    EnrollReply,
    EnrollRequest,
    HeartbeatReply,
    HeartbeatRequest,
    Hello,
    UploadReply,
)

MAX_WAIT_SECONDS = 20.0
POLL_SECONDS = 0.25
JSON = "application/json"


class CheckpointAnnouncementSerializer(serializers.Serializer[Any]):
    step = serializers.IntegerField(min_value=0)
    manifest_sha256 = serializers.RegexField(r"^[0-9a-f]{64}$")
    tar_sha256 = serializers.RegexField(r"^[0-9a-f]{64}$")
    bytes = serializers.IntegerField(min_value=1)
    epoch = serializers.IntegerField(min_value=0)
    final = serializers.BooleanField(required=False, default=False)


class NodeView(ApiView):
    authentication_classes = [NodeAuthentication]
    permission_classes = [IsNode]


class EnrollView(ApiView):
    """The bearer is a single-use join token."""

    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]

    @extend_schema(operation_id="agent_enroll", request=EnrollRequest, responses={201: EnrollReply})
    def post(self, request: Request) -> HttpResponse:
        """Enroll a node.

        The bearer is a single-use join token. The response has the credential of the node.
        """
        token = bearer(request)
        if token is None:
            raise exceptions.NotAuthenticated("send the join token as bearer token")
        require_protocol(_decode(request, Hello).protocol)
        enrollment = _decode(request, EnrollRequest)
        node, credential = fleet.enroll(
            token=token,
            name=enrollment.name,
            inventory=enrollment.inventory,
            now=clock.now(),
        )
        environment = settings.ENVIRONMENT
        return _json(
            EnrollReply(
                node_id=node.pk,
                credential=credential,
                heartbeat_seconds=environment.heartbeat_seconds,
                lease_ttl_seconds=environment.node_lease_seconds,
                orphan_ttl_seconds=environment.orphan_seconds,
                protocol=PROTOCOL,
            ),
            status=201,
        )


class HeartbeatView(NodeView):
    """Receives the observed state and returns the desired state. `?wait=8` waits for a change."""

    @extend_schema(
        operation_id="agent_heartbeat",
        parameters=[
            OpenApiParameter("wait", float, description="seconds to wait for a change; at most 20"),
            OpenApiParameter("revision", int, description="revision of the last reply; wait for a newer one"),
        ],
        request=HeartbeatRequest,
        responses=HeartbeatReply,
    )
    def post(self, request: Request) -> HttpResponse:
        """Report the node's state and get the desired state.

        The body is the observed state of the node, the response its desired state. With `?wait=8` the response
        comes as soon as the desired state changes, after 8 seconds at the latest.
        """
        node = node_of(request)
        require_protocol(_decode(request, Hello).protocol)
        report = _decode(request, HeartbeatRequest)
        revision = _last_seen_revision(request, node)
        acknowledged = services.process_heartbeat(node, report, now=clock.now())
        wait = _wait_seconds(request)
        if wait and not acknowledged:
            _wait_for_change(node, revision, wait)
        # Read the revision before the state: a change in between ends the node's next wait at once.
        node = Node.objects.get(pk=node.pk)
        fleet.require_not_revoked(node)
        attempts, teams = services.desired_attempts(node), teams_of(node.pool_id)
        return _json(
            HeartbeatReply(
                attempts=attempts,
                acknowledged=acknowledged,
                imports=imports_for(node.pk, teams, takes_work=node.takes_work),
                model_checks=checks_for(node.pk, teams, node.model_roots, takes_work=node.takes_work),
                revision=node.desired_revision,
                heartbeat_seconds=settings.ENVIRONMENT.heartbeat_seconds,
            )
        )


def require_protocol(protocol: int) -> None:
    """426 for another protocol, with what to do. The agent's jobs continue, as in an outage."""
    if protocol < PROTOCOL:
        raise Problem(
            426, "agent_too_old",
            f"this agent has protocol {protocol}, this server {PROTOCOL}. Upgrade the agent: stop it, check out Oolong "
            f"{oolong.__version__} on its machine, run `python3 manage.py setup`, start it again; its jobs continue",
        )  # fmt: skip
    if protocol > PROTOCOL:
        raise Problem(
            426, "agent_too_new",
            f"this agent has protocol {protocol}, this server, Oolong {oolong.__version__}, {PROTOCOL}. Upgrade the "
            "server first: check out the agent's version there, run `python3 manage.py setup` and "
            "`python3 manage.py migrate`, start it again",
        )  # fmt: skip


def _wait_seconds(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        asked = float(text)
    except ValueError as error:
        raise unprocessable("invalid", f"wait={text!r}: seconds") from error
    # A node must not count as unresponsive while its heartbeat waits here.
    return max(0.0, min(MAX_WAIT_SECONDS, settings.ENVIRONMENT.node_lease_seconds / 2, asked))


def _last_seen_revision(request: Request, node: Node) -> int:
    known = parse_int(request.query_params.get("revision", ""))
    return node.desired_revision if known is None else known


def _wait_for_change(node: Node, revision: int, seconds: float) -> None:
    """Wait until the node's desired state has another revision, or for `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if Node.objects.filter(pk=node.pk).exclude(desired_revision=revision).exists():
            return
        if not connection.in_atomic_block:
            connection.close()  # back to the pool while this request sleeps
        time.sleep(POLL_SECONDS)


class LeaveView(NodeView):
    @extend_schema(operation_id="agent_leave", request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        """Leave the pool.

        The credential of the node ends. 409 `node_in_use` while a run needs the node.
        """
        fleet.leave(node_of(request), now=clock.now())
        return Response({})


class ArtifactView(NodeView):
    @extend_schema(
        operation_id="agent_artifact",
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, sha256: str) -> HttpResponseBase:
        """Download an artifact for a job.

        The bytes of a dataset, model, checkpoint or function that a job of this node needs, by their SHA-256.
        A Range header resumes a download.
        """
        node = node_of(request)
        if not services.may_read(node, sha256) or not store.has_blob(sha256):
            raise not_found("artifact", sha256)
        return blob_response(request._request, sha256)


class CheckpointUploadsView(NodeView):
    @extend_schema(
        operation_id="agent_announce_checkpoint",
        request=CheckpointAnnouncementSerializer,
        responses={200: UploadReply},
    )
    def post(self, request: Request, attempt_id: str) -> Response:
        """Announce a checkpoint upload.

        Begins or resumes the upload of a committed checkpoint. The response lists the received parts.
        """
        fields = body_of(CheckpointAnnouncementSerializer, request)
        with transaction.atomic():
            reply = services.announce_checkpoint(node_of(request), attempt_id, now=clock.now(), **fields)
        return Response(msgspec.to_builtins(reply))


class UploadPartView(NodeView):
    @extend_schema(
        operation_id="agent_upload_part",
        parameters=[PART_SHA256],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: UploadReply},
    )
    def put(self, request: Request, upload_id: str, number: int) -> Response:
        """Upload a part of a checkpoint.

        Parts may be sent in any order and again.
        """
        upload = services.upload_of(node_of(request), upload_id)
        data = request._request.read(multipart.size_for(upload.bytes) + 1)
        multipart.put_part(upload.pk, upload.bytes, number, data, sha256=request.headers.get("X-Part-SHA256"))
        return Response(msgspec.to_builtins(services.upload_reply(upload)))


class UploadCompleteView(NodeView):
    @extend_schema(operation_id="agent_complete_upload", request=None, responses={200: UploadReply})
    def post(self, request: Request, upload_id: str) -> Response:
        """Complete a checkpoint upload.

        Joins the parts and compares the result with the announced SHA-256.
        """
        reply = services.complete_upload(node_of(request), upload_id, now=clock.now())
        return Response(msgspec.to_builtins(reply))


def _decode(request: Request, kind: Any) -> Any:
    try:
        return msgspec.json.decode(request._request.body, type=kind)
    except msgspec.DecodeError as error:
        raise Problem(422, "invalid", f"the body is no {kind.__name__}: {error}") from error


def _json(reply: UploadReply | EnrollReply | HeartbeatReply, status: int = 200) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(reply), status=status, content_type=JSON)
