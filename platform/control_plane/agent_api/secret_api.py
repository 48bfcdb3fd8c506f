"""Endpoint for agents: the secrets of a job that is about to start."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.agent_api.job_api import NodeView
from control_plane.core.api.request_parsing import body_of
from control_plane.core.infra import clock
from control_plane.fleet.authentication import node_of
from control_plane.runs import job_secrets
from oolong.contracts.agent import SecretsReply


class SecretsRequestSerializer(serializers.Serializer[Any]):
    epoch = serializers.IntegerField(min_value=0)
    incarnation = serializers.IntegerField(min_value=0, required=False, default=0)


class JobSecretsView(NodeView):
    @extend_schema(
        operation_id="agent_job_secrets",
        request=SecretsRequestSerializer,
        responses={200: SecretsReply},
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Get the secrets of a job.

        The values of the project secrets that the job may have. Each use is in the audit log.
        """
        fields = body_of(SecretsRequestSerializer, request)
        variables = job_secrets.reveal(node_of(request), job_id, now=clock.now(), **fields)
        return Response({"variables": variables}, headers={"Cache-Control": "no-store"})
