"""The view that every address of the API is made of."""

from __future__ import annotations

from functools import cache
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.views import APIView

from control_plane.core.api.query_params import invalid_parameter
from control_plane.core.infra.clock import rfc3339
from oolong.contracts.error_words import shown


class ApiView(APIView):
    # Refuses what the address says beside the parameters that its operation declares: a filter that is misspelt must
    # not answer with everything. (No docstring: the API's document would give it to each operation without its own.)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # authentication and permission errors come first
        if request.method not in self.allowed_methods or request.method == "OPTIONS":
            return  # 405 comes next; and who asks what there is asks for nothing
        view: Any = type(self)
        known = query_parameters(view, "GET" if request.method == "HEAD" else request.method)
        for name in request.query_params:
            if name not in known:
                told = f"known: {', '.join(known)}" if known else "this address takes none"
                raise invalid_parameter(name, f"unknown parameter {shown(name)}; {told}", "unknown_parameter")

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().finalize_response(request, response, *args, **kwargs)
        token = getattr(getattr(request, "_auth", None), "token", None)  # `auth` would authenticate again
        if (ends := getattr(token, "expires_at", None)) is not None:
            found["X-Oolong-Token-Expires"] = str(rfc3339(ends))
        return found


@cache
def query_parameters(view: type[APIView], method: str) -> tuple[str, ...]:
    """The names that this method of the view declares to the API's document, in that order."""
    declared = getattr(getattr(view, method.lower(), None), "kwargs", {}).get("schema")
    if declared is None:
        return ()
    schema = declared()
    schema.view, schema.method = view(request=None, kwargs={}), method
    return tuple(
        one.name
        for one in schema.get_override_parameters()
        if isinstance(one, OpenApiParameter) and one.location == OpenApiParameter.QUERY
    )
