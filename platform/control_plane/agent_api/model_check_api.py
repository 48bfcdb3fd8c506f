"""Endpoints for agents that check a model in their file system: begin, keep alive, complete."""

from __future__ import annotations

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.agent_api.job_api import NodeView
from control_plane.assets.base_models import model_check_services as services
from control_plane.core.api.errors import unprocessable
from control_plane.core.infra import clock
from control_plane.core.security.request_gateway import REPORT_BYTES
from control_plane.fleet.access import teams_of
from control_plane.fleet.authentication import node_of
from oolong.contracts.model_report import CheckOrder, ModelReport


class CheckBeginView(NodeView):
    @extend_schema(operation_id="agent_begin_model_check", request=None, responses={200: CheckOrder})
    def post(self, request: Request, check_id: str) -> Response:
        """Begin a model check.

        Assigns the check of a model in the node's file system to the node.
        """
        node = node_of(request)
        order = services.begin(
            node.pk, check_id, teams_of(node.pool_id), node.model_roots, takes_work=node.takes_work,
            now=clock.now(),
        )  # fmt: skip
        return Response(msgspec.to_builtins(order))


class CheckProgressView(NodeView):
    @extend_schema(
        operation_id="agent_report_model_check", request=None, responses={200: OpenApiTypes.OBJECT}
    )
    def post(self, request: Request, check_id: str) -> Response:
        """Keep a model check alive.

        Reports that the check is still running. The answer says whether it is still wanted.
        """
        services.report_alive(node_of(request).pk, check_id, now=clock.now())
        return Response({})


class CheckCompleteView(NodeView):
    @extend_schema(
        operation_id="agent_complete_model_check",
        request=ModelReport,
        responses={200: OpenApiTypes.OBJECT},
    )
    def post(self, request: Request, check_id: str) -> Response:
        """Report the result of a model check.

        The files, tensors and errors that the node found.
        """
        node = node_of(request)
        services.held_by(node.pk, check_id)  # before reading the body
        try:
            report = msgspec.json.decode(request._request.read(REPORT_BYTES), type=ModelReport)
        except msgspec.MsgspecError as error:
            raise unprocessable("invalid", f"the report of the check is malformed: {error}") from error
        check = services.complete(node.pk, check_id, report, now=clock.now())
        return Response({"state": str(check.model.state), "message": check.model.message})
