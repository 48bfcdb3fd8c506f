from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import FieldError, unprocessable
from control_plane.core.api.request_parsing import body_of
from control_plane.experiments import templates
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.telemetry.planning.serializers import SimulateSerializer, SimulationSerializer
from control_plane.telemetry.planning.simulate import Wanted, simulate_run


class SimulateView(ApiView):
    scopes = {"POST": "runs:read"}

    @extend_schema(operation_id="simulate_run", request=SimulateSerializer, responses=SimulationSerializer)
    def post(self, request: Request) -> Response:
        """Simulate a run.

        Simulates the run on a number of slots: speed, idle time and staleness, the fastest split, and what max
        staleness, batch size and each assumption change. Nothing is created.
        """
        caller, body = caller_of(request), body_of(SimulateSerializer, request)
        spec, template = body.pop("spec"), body.pop("template", None)
        if template is not None:
            spec = templates.with_template(caller, template, spec)
        resolved = resolve_spec(caller, spec)
        if resolved.errors:
            errors = [
                FieldError(f"/spec{error.pointer}", error.code, error.message) for error in resolved.errors
            ]
            raise unprocessable("invalid", errors[0].message, errors)
        return Response(SimulationSerializer.render(simulate_run(caller, resolved, Wanted(**body))))
