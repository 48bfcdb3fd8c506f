"""OpenTelemetry traces over OTLP/HTTP, switched on by the standard variable OTEL_EXPORTER_OTLP_ENDPOINT.

Without the variable nothing is imported and `span` costs a comparison. Where to, with which headers and what
share of the traces: the standard OTEL_* variables, which the SDK reads itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oolong.logs import about

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_tracer: Any = None  # of the SDK, once started
_provider: Any = None


class TracingUnavailable(Exception):
    """Tracing is configured but not possible on this machine."""


def start_tracing(service: str) -> bool:
    """Start exporting spans of this process if an endpoint is configured. Call it after a fork."""
    global _tracer, _provider
    if not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailable(
            f"{ENDPOINT_VARIABLES[0]} is set, but the package {error.name} is not installed here: install "
            "opentelemetry-exporter-otlp-proto-http, or unset the variable"
        ) from error
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which the resource reads itself, win.
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    _provider = TracerProvider(resource=Resource.create(named))
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = _provider.get_tracer("oolong")
    return True


def stop_tracing() -> None:
    """Send what is left and stop."""
    global _tracer, _provider
    if _provider is not None:
        _provider.shutdown()
    _tracer = _provider = None


@contextmanager
def span(
    name: str, *, kind: str = "internal", carrier: Mapping[str, str] | None = None, **attributes: Any
) -> Iterator[Any]:
    """One span around the block; an exception marks it as failed. `carrier` has the caller's `traceparent`.

    Gives the span, or None when nothing is traced. Log lines inside carry its `trace_id`.
    """
    if _tracer is None:
        yield None
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract(dict(carrier)) if carrier else None
    kinds = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
    with _tracer.start_as_current_span(
        name, context=context, kind=kinds[kind], attributes=_plain(attributes)
    ) as current:
        with about(trace_id=trace_id()):
            yield current


def trace_id() -> str:
    """Of the current span as 32 hexadecimal digits; empty when nothing is traced."""
    if _tracer is None:
        return ""
    from opentelemetry.trace import format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    return format_trace_id(context.trace_id) if context.is_valid else ""


def headers() -> dict[str, str]:
    """What a request carries so that the other side continues this trace; empty when nothing is traced."""
    if _tracer is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in attributes.items() if value is not None}
