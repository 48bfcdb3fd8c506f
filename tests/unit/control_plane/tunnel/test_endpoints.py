"""What may pass the relay, and where it may go."""

from __future__ import annotations

import msgspec
import pytest

from control_plane.runs.plan_jobs import port_names
from gpu_agents.agent.launch import numbered_ports
from gpu_agents.agent.relay import JobEndpoint, NoEndpoint, endpoints_of
from oolong.contracts.relay.endpoints import ENDPOINTS, allowed, plain_path, ports_of
from oolong.contracts.relay.frames import Open
from tests.unit.control_plane.tunnel.conftest import JOB_TOKEN, desired
from tests.unit.rollout.harness import run_spec

ATTEMPTS = [desired("att_1", 7001, 7002), desired("att_2", 7003)]


def opening(
    path: str = "", *, attempt: str = "att_1", endpoint: str = "sessions", method: str = "POST"
) -> Open:
    return Open("s", attempt, endpoint, method, path, [])


def test_a_new_session_is_tried_at_every_endpoint_and_an_open_one_goes_to_its_own() -> None:
    assert endpoints_of(opening(), ATTEMPTS) == [
        JobEndpoint(0, 7001, JOB_TOKEN),
        JobEndpoint(1, 7002, JOB_TOKEN),
    ]
    assert endpoints_of(opening("1-abc/v1/models", method="GET"), ATTEMPTS) == [
        JobEndpoint(1, 7002, JOB_TOKEN)
    ]


def test_what_lies_below_a_playground_names_no_job() -> None:
    attempt = msgspec.structs.replace(desired("att_1", 7001), ports={"engine-0": 7000, "playground-0": 7004})
    for path in ("", "chat/completions", "score"):
        assert endpoints_of(opening(path, endpoint="playground"), [attempt]) == [
            JobEndpoint(0, 7004, JOB_TOKEN)
        ]
    with pytest.raises(NoEndpoint):
        endpoints_of(opening("chat/completions", endpoint="playground", method="DELETE"), [attempt])
    with pytest.raises(NoEndpoint):
        endpoints_of(opening("chat/completions", endpoint="playground"), ATTEMPTS)


@pytest.mark.parametrize(
    "wrong",
    [
        opening(attempt="att_3"),
        opening(endpoint="metrics"),
        opening(method="DELETE"),
        opening("2-abc"),
        opening("abc/v1"),
        opening("../claim"),
        opening("0-a/%2e%2e/claim"),
    ],
    ids=str,
)
def test_nothing_else_on_the_node_can_be_named(wrong: Open) -> None:
    with pytest.raises(NoEndpoint):
        endpoints_of(wrong, ATTEMPTS)


@pytest.mark.parametrize(
    ("path", "fit"),
    [
        ("", True),
        ("0-ab12/v1/chat/completions", True),
        ("/claim", False),
        ("a//b", False),
        ("a/../b", False),
        ("a/./b", False),
        ("a?x=1", False),
        ("a#x", False),
        ("a b", False),
        ("a\r\nHost: b", False),
        ("ä", False),
        ("a" * 513, False),
    ],
)
def test_only_plain_paths_pass(path: str, fit: bool) -> None:
    assert plain_path(path) is fit


def test_headers_pass_by_name_and_cannot_end_their_line() -> None:
    sent = [
        ("Content-Type", "application/json"),
        ("content-type", "text/plain"),
        ("Authorization", "Bearer ool_secret"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "7"),
        ("Host", "elsewhere"),
        ("Cookie", "a=b"),
        ("X-Request-Id", "a\r\nAuthorization: Bearer x"),
        ("Accept", "*/*"),
    ]
    names = ENDPOINTS["sessions"].request_headers
    assert allowed(sent, names) == [("content-type", "application/json"), ("accept", "*/*")]


def test_the_ports_of_an_endpoint_are_in_the_order_of_their_jobs() -> None:
    ports = {"session-10": 3, "session-2": 2, "session-0": 1, "controller": 9, "session-x": 8}
    assert ports_of(ENDPOINTS["sessions"], ports) == {0: 1, 2: 2, 10: 3}


def test_a_run_of_agent_sessions_gets_a_port_per_engine_and_its_jobs_receive_it() -> None:
    names = port_names(run_spec(workflow={"name": "agent_session"}, rollout={"engines": 2}))
    assert [name for name in names if name.startswith("session")] == ["session-0", "session-1"]
    assert not [name for name in port_names(run_spec()) if name.startswith("session")]
    ports = {name: 5000 + place for place, name in enumerate(names)}
    assert numbered_ports(ports, "session") == list(ports_of(ENDPOINTS["sessions"], ports).values())
