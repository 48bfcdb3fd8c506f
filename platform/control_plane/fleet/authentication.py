"""Authenticates a node by the credential in its bearer token and sets `request.auth` to the Node."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from control_plane.accounts.identity.authentication import bearer
from control_plane.core.api.errors import Problem
from control_plane.core.security.request_context import note_caller
from control_plane.fleet.models import Node
from control_plane.fleet.selectors import node_of_credential
from control_plane.fleet.services import require_not_revoked


class NodeAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[None, Node] | None:
        text = bearer(request)
        if text is None:
            return None
        node = node_of_credential(text)
        if node is None:
            raise exceptions.NotAuthenticated("the node credential is unknown; enroll the node again")
        require_not_revoked(node)
        note_caller(kind="node", identity=node.pk, name=node.name)
        return None, node

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class IsNode(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, Node)


def node_of(request: Request) -> Node:
    if not isinstance(request.auth, Node):
        raise Problem(401, "not_authenticated", "send the node credential as bearer token")
    return request.auth


class NodeScheme(OpenApiAuthenticationExtension):
    target_class = NodeAuthentication
    name = "node"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "oolnode_…"}
