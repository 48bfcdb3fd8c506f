from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.tokens import tickets
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.request_parsing import no_body
from control_plane.core.infra import clock
from control_plane.core.infra.clock import rfc3339


class StreamTicketSerializer(serializers.Serializer[Any]):
    ticket = serializers.CharField(help_text="opens one stream, once")
    expires_at = serializers.DateTimeField()


class StreamTicketsView(ApiView):
    scopes = {"POST": None}

    @extend_schema(operation_id="create_stream_ticket", request=None, responses={201: StreamTicketSerializer})
    @no_body
    def post(self, request: Request) -> Response:
        """Create a stream ticket.

        For a client that can send no header: `GET /stream?topic=…&ticket=…`, or `auth` on the WebSocket. Good
        once, for a minute.
        """
        text, expires_at = tickets.create_ticket(caller_of(request), now=clock.now())
        return Response({"ticket": text, "expires_at": rfc3339(expires_at)}, status=201)
