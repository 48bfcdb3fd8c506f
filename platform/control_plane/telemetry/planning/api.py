from __future__ import annotations

from typing import Any

from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import FieldError, unprocessable
from control_plane.experiments import templates
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.telemetry.planning.serializers import SimulateSerializer, SimulationSerializer
from control_plane.telemetry.planning.simulate import Wanted, simulate_run


class SimulateView(ApiView):
    scopes = {"POST": "runs:read"}

    @endpoint("simulate_run", body=SimulateSerializer, returns=SimulationSerializer)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Simulate a run.

        Simulates the run on a number of slots: speed, idle time and staleness, the fastest split, and what max
        staleness, batch size and each assumption change. Nothing is created.
        """
        caller, spec, template = caller_of(request), fields.pop("spec"), fields.pop("template", None)
        if template is not None:
            spec = templates.with_template(caller, template, spec)
        resolved = resolve_spec(caller, spec)
        if resolved.errors:
            errors = [
                FieldError(f"/spec{error.pointer}", error.code, error.message) for error in resolved.errors
            ]
            raise unprocessable("invalid", errors[0].message, errors)
        return simulate_run(caller, resolved, Wanted(**fields))
