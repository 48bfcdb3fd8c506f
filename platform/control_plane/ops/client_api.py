"""The SDK and the command as a package, open to everybody: a pipeline installs it before it has used its token."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import not_found
from control_plane.ops.client_wheel import Wheel, client_wheel
from oolong import __version__


class ClientPackageSerializer(serializers.Serializer[Any]):
    version = serializers.CharField()
    filename = serializers.CharField()
    url = serializers.CharField(help_text="of the wheel")
    sha256 = serializers.CharField(help_text="of the wheel")
    requirement = serializers.CharField(help_text="what pip installs: address and hash")


class _OpenView(ApiView):
    permission_classes = [AllowAny]
    authentication_classes: list[Any] = []


class ClientPackageView(_OpenView):
    @extend_schema(operation_id="client_package", responses=ClientPackageSerializer, auth=[])
    def get(self, request: Request) -> Response:
        """Describe the client package.

        The version, file name and SHA-256 of the wheel that this server serves, and how to install it.
        """
        wheel = client_wheel()
        return Response(
            {
                "version": __version__,
                "filename": wheel.filename,
                "url": _url(request, wheel),
                "sha256": wheel.sha256,
                "requirement": _requirement(request, wheel),
            }
        )


class ClientRequirementsView(_OpenView):
    @extend_schema(
        operation_id="client_requirements", responses={(200, "text/plain"): OpenApiTypes.STR}, auth=[]
    )
    def get(self, request: Request) -> HttpResponse:
        """Get the client package as a requirements file.

        One line with the wheel's address and SHA-256, so that `pip install -r` takes this address.
        """
        return HttpResponse(f"{_requirement(request, client_wheel())}\n", content_type="text/plain")


class ClientWheelView(_OpenView):
    @extend_schema(
        operation_id="client_wheel",
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
        auth=[],
    )
    def get(self, request: Request, filename: str) -> HttpResponse:
        """Download the client's wheel.

        The SDK and the command line of exactly this server's version.
        """
        wheel = client_wheel()
        if filename != wheel.filename:
            raise not_found("client package", filename)
        return HttpResponse(
            wheel.data, content_type="application/octet-stream", headers={"ETag": f'"{wheel.sha256}"'}
        )


def _requirement(request: Request, wheel: Wheel) -> str:
    return f"oolong @ {_url(request, wheel)}#sha256={wheel.sha256}"


def _url(request: Request, wheel: Wheel) -> str:
    public: str = settings.ENVIRONMENT.public_url.rstrip("/")
    return f"{public or request.build_absolute_uri('/').rstrip('/')}/api/v1/client/{wheel.filename}"
