"""Traces, received by a small OTLP collector of this test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from oolong import tracing
from tests.unit.control_plane.conftest import Person, SimulatedNode

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, Any]]]:
    """Traces go to a receiver of OTLP/HTTP; calling it ends them and gives the spans by name."""
    received: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    assert tracing.start_tracing("oolong-test")

    def spans() -> dict[str, Any]:
        tracing.stop_tracing()
        assert {path for path, _ in received} <= {"/v1/traces"}
        return {
            span.name: span
            for _, request in received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    yield spans
    tracing.stop_tracing()
    server.shutdown()
    server.server_close()
    thread.join(timeout=60)


def test_a_request_goes_on_with_the_trace_of_its_caller(
    alice: Person, collector: Callable[[], dict[str, Any]]
) -> None:
    run = alice.run()
    answer = alice.get(f"/runs/{run['id']}", traceparent=CALLER)
    assert answer.status_code == 200
    span = collector()["GET /api/v1/runs/<str:run_id>"]
    assert span.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert span.parent_span_id.hex() == "b7ad6b7169203331"
    attributes = {item.key: item.value for item in span.attributes}
    assert attributes["oolong.run"].string_value == run["id"]
    assert attributes["http.response.status_code"].int_value == 200


def test_an_error_names_its_trace(alice: Person, collector: Callable[[], dict[str, Any]]) -> None:
    refusal = alice.get("/runs/run_none", traceparent=CALLER)
    assert refusal.status_code == 404
    assert refusal.json()["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    malformed = alice.get("/runs/run_none", traceparent="00-nonsense")
    assert len(malformed.json()["trace_id"]) == 32, "a trace of its own"


def test_without_an_endpoint_nothing_is_traced(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not tracing.start_tracing("oolong-test")
    assert "trace_id" not in alice.get("/runs/run_none").json()
    assert tracing.headers() == {}
    with tracing.span("nothing") as span:
        assert span is None


def test_the_start_of_a_run_and_a_tick_are_spans(
    collector: Callable[[], dict[str, Any]],
    alice: Person,
    node: Callable[..., SimulatedNode],
    start: Callable[..., Any],
    clock: Any,
) -> None:
    from control_plane.runs import tasks

    run = start(node())
    tasks.advance_runs()
    spans = collector()
    started = {item.key: item.value.string_value for item in spans["start run"].attributes}
    assert started["oolong.run"] == run["id"]
    assert "tick advance-runs" in spans
    assert "POST /api/v1/agent/heartbeat" in spans


async def test_a_heartbeat_of_the_agent_carries_its_trace(collector: Callable[[], dict[str, Any]]) -> None:
    import httpx

    from gpu_agents.agent.api import AgentApi
    from oolong.contracts.agent import HeartbeatRequest, Inventory

    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["traceparent"])
        return httpx.Response(200, json={"attempts": [], "acknowledged": []})

    api = AgentApi("http://127.0.0.1:1", "x", transport=httpx.MockTransport(answer))
    inventory = Inventory(
        hostname="n", agent_version="0", boot_id="b", cpu_count=1, memory_bytes=1, disk_free_bytes=1, slots=[]
    )
    await api.heartbeat(HeartbeatRequest(inventory=inventory, jobs=[], started_at=0.0))
    await api.close()
    span = collector()["agent heartbeat"]
    (carried,) = seen
    assert carried.startswith(f"00-{span.trace_id.hex()}-{span.span_id.hex()}-")


def test_an_exception_marks_its_span(collector: Callable[[], dict[str, Any]]) -> None:
    with pytest.raises(ValueError), tracing.span("breaks"):
        raise ValueError("no")
    assert collector()["breaks"].status.code == 2  # ERROR
