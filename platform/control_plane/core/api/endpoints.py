"""One declaration for the handler of an operation: what it takes, what it answers, and its entry in the schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.api.pagination import paginate_together, read_page, whole_page
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import body_of, no_body
from control_plane.core.api.schema import PAGE_PARAMETERS, page_of

Handler = Callable[..., Any]
Resource = type[ResponseSerializer]


def endpoint(
    operation_id: str,
    *,
    body: type[serializers.Serializer[Any]] | None = None,
    returns: Resource | None = None,
    status: int = 200,
    existing: str = "",
    page: Resource | None = None,
    order: str = "-pk",
    whole: Resource | None = None,
    parameters: Sequence[OpenApiParameter] = (),
    **schema: Any,
) -> Callable[[Handler], Callable[..., Response]]:
    """Decorate the handler of a view. It returns rows; this renders them. A `Response` goes out as it is.

    body      a handler with the parameter `fields` gets it validated; one that has to look something up first reads it
              itself (`body_of`), so that what does not exist is a 404 whatever the body. A POST without it takes none.
    returns   the answer is this form of the returned row, with `status`.
    existing  the handler returns (row, created): 201, or 200 for what this text says of the row.
    page      the returned query set is answered page by page, by `order`, a unique sortable column.
    whole     the returned rows are answered as one page.
    Without returns, page and whole the answer is 204.
    """
    if page is not None:
        parameters = [*PAGE_PARAMETERS, *parameters]
    responses: Any = {204: None}
    if listed := page or whole:
        responses = page_of(listed)
    elif returns is not None:
        responses = {status: returns}
    if returns is not None and existing:
        responses = {201: returns, 200: OpenApiResponse(returns, description=existing)}

    def answer(request: Request, found: Any) -> Response:
        if isinstance(found, Response):
            return found
        if page is not None:
            key = order.removeprefix("-")
            newest_first = order.startswith("-")
            return Response(
                paginate_together(
                    found, read_page(request), page.render_all, key=key, newest_first=newest_first
                )
            )
        if whole is not None:
            return Response(whole_page(whole.render_all(found)))
        if returns is None:
            return Response(status=204)
        if existing:
            row, created = found
            return Response(returns.render(row), status=201 if created else 200)
        return Response(returns.render(found), status=status)

    def decorate(handler: Handler) -> Callable[..., Response]:
        takes_fields = "fields" in inspect.signature(handler).parameters

        @wraps(handler)
        def view(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
            if takes_fields and body is not None:
                kwargs["fields"] = body_of(body, request)
            return answer(request, handler(self, request, *args, **kwargs))

        declared = {"request": body, **schema}
        takes_none = handler.__name__ == "post" and declared["request"] is None
        documented = extend_schema(operation_id, parameters=[*parameters], responses=responses, **declared)
        return documented(no_body(view) if takes_none else view)

    return decorate
