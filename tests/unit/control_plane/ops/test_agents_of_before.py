"""Agents of the version before this one are served; those further away are told what to do."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from django.test import Client

from control_plane.fleet import services as fleet
from control_plane.fleet.models import Node
from control_plane.fleet.pools import default_pool
from gpu_agents.agent.api import AgentApi
from gpu_agents.agent.identity import EnrollmentError, enroll
from gpu_agents.agent.settings import AgentSettings
from oolong.contracts.agent import OLDEST_PROTOCOL, PROTOCOL
from tests.unit.control_plane.conftest import Clock, Person, SimulatedNode
from tests.unit.control_plane.ops import agent_protocol_1 as before
from tests.unit.control_plane.ops.agent_protocol_1 import RECORDED


class OldAgent:
    """Sends what was recorded, and reads answers by the structs of then: an unknown kind or a missing field fails."""

    def __init__(self) -> None:
        self.client = Client()
        self.credential = ""
        self.jobs: list[dict[str, Any]] = []

    def post(self, path: str, body: bytes, kind: Any, *, status: int = 200) -> Any:
        answer = self.client.post(
            f"/api/v1/agent{path}", data=body, content_type="application/json",
            headers={"authorization": f"Bearer {self.credential}"},
        )  # fmt: skip
        assert answer.status_code == status, answer.content
        return msgspec.json.decode(answer.content, type=kind)

    def enroll(self, token: str) -> None:
        self.credential = token
        body = json.dumps(RECORDED["enroll"]).encode()
        self.credential = self.post("/enroll", body, before.EnrollReply, status=201).credential

    def send(self) -> before.HeartbeatReply:
        body = {**RECORDED["heartbeat"], "jobs": self.jobs}
        reply: before.HeartbeatReply = self.post(
            "/heartbeat", json.dumps(body).encode(), before.HeartbeatReply
        )
        return reply

    def runs_all(self, attempt: before.DesiredAttempt) -> None:
        self.jobs = []
        for job in attempt.jobs:
            observed = copy.deepcopy(RECORDED["observed"])
            self.jobs.append({**observed, "job_id": job.job_id, "attempt_id": attempt.attempt_id})


def assert_known(spec: dict[str, Any]) -> None:
    """A name that an agent of then does not know would end it."""
    assert set(spec) <= set(before.SPEC)
    for section, value in spec.items():
        if isinstance(value, dict):
            assert set(value) <= set(before.SPEC[section].split()), section


def test_the_recorded_conversation_of_an_old_agent_goes_through(
    alice: Person, clock: Clock, tick: Callable[..., None]
) -> None:
    token, _ = fleet.create_join_token(default_pool(), now=clock.now)
    agent = OldAgent()
    agent.enroll(token)
    assert Node.objects.get().protocol == 1
    assert agent.send().attempts == []
    run = alice.run()
    tick()
    (attempt,) = agent.send().attempts
    assert {job.kind for job in attempt.jobs} == {"controller", "reward", "rollout", "trainer"}
    assert len(attempt.dataset.sha256) == 64 and attempt.model_path == "/models/tiny"
    assert_known(attempt.spec)
    agent.runs_all(attempt)
    agent.send()
    assert alice.see(run["id"])["status"] == "RUNNING"
    # Lines of the trainer, twice: at least once from there, exactly once here.
    trainer = next(job for job in attempt.jobs if job.kind == "trainer")
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in RECORDED["outbox"])
    for _ in range(2):
        shipped = agent.post(
            f"/jobs/{trainer.job_id}/outbox/main-0.jsonl?offset=0", lines, before.OutboxReply
        )
        assert shipped.offset == len(lines)
    assert alice.see(run["id"])["progress"]["done"] == 1
    # Its last checkpoint.
    tar = b"a tar of it"
    announced = json.dumps(RECORDED["checkpoint"])
    announced = announced.replace("$tar_sha256", hashlib.sha256(tar).hexdigest()).replace(
        "$manifest_sha256", "0" * 64
    )
    upload = agent.post(f"/attempts/{attempt.attempt_id}/checkpoints", announced.encode(), before.UploadReply)
    part = agent.client.put(
        f"/api/v1/agent/uploads/{upload.upload_id}/parts/0", data=tar, content_type="application/octet-stream",
        headers={
            "authorization": f"Bearer {agent.credential}", "x-part-sha256": hashlib.sha256(tar).hexdigest(),
        },
    )  # fmt: skip
    assert part.status_code == 200
    assert agent.post(f"/uploads/{upload.upload_id}/complete", b"{}", before.UploadReply).stored
    # All ends well, and is acknowledged.
    for job in agent.jobs:
        job |= {"state": "exited", "reason": "completed", "exit_code": 0, "outbox": []}
    acknowledged: set[str] = set()
    for _ in range(4):
        acknowledged |= set(agent.send().acknowledged)
        tick()
    assert acknowledged == {job.job_id for job in attempt.jobs}
    assert alice.see(run["id"])["status"] == "SUCCEEDED"


def test_an_old_agent_is_given_no_engine_to_join(
    alice: Person, clock: Clock, tick: Callable[..., None]
) -> None:
    """It would start it on the ports of the attempt's first list."""
    token, _ = fleet.create_join_token(default_pool(), now=clock.now)
    agent = OldAgent()
    agent.enroll(token)
    Node.objects.get().slots.create(name="cpu-2", device="cpu")
    run = alice.run()
    tick()
    (attempt,) = agent.send().attempts
    agent.runs_all(attempt)
    recorded = RECORDED["heartbeat"]["inventory"]["slots"]
    recorded.append({**recorded[0], "slot": "cpu-2"})
    try:
        agent.send()
        wish = {"changes": {"rollout": {"engines": 2}}}
        assert alice.post(f"/runs/{run['id']}/runtime", wish).status_code == 202
        tick()
        assert {job.name for job in agent.send().attempts[0].jobs} == {job.name for job in attempt.jobs}
    finally:
        recorded.pop()
    said = [event["message"] for event in alice.events(run["id"])]
    assert any("is too old to take engines in" in message for message in said), said


@pytest.mark.parametrize(
    ("protocol", "code", "says"),
    [
        (OLDEST_PROTOCOL - 1, "agent_too_old", "Upgrade the agent: stop it, check out Oolong"),
        (PROTOCOL + 1, "agent_too_new", "The server is upgraded first"),
    ],
)
def test_an_agent_too_far_away_is_told_what_to_upgrade(
    node: Callable[..., SimulatedNode], protocol: int, code: str, says: str
) -> None:
    first = node()
    seen = Node.objects.get().last_seen_at
    # Its body may be of a shape that this server cannot read.
    answer = first.post("/heartbeat", json.dumps({"protocol": protocol, "other": "shape"}))
    assert (answer.status_code, answer.json()["code"]) == (426, code)
    assert says in answer.json()["detail"] and f"{OLDEST_PROTOCOL} to {PROTOCOL}" in answer.json()["detail"]
    assert Node.objects.get().last_seen_at == seen, "what it has was not noted"


def test_enrollment_refuses_another_protocol_and_keeps_the_token(db: None, clock: Clock) -> None:
    token, _ = fleet.create_join_token(default_pool(), now=clock.now)
    client = Client(headers={"authorization": f"Bearer {token}"})
    body = {**RECORDED["enroll"], "protocol": PROTOCOL + 1}
    answer = client.post("/api/v1/agent/enroll", json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (426, "agent_too_new")
    assert not Node.objects.exists()
    body["protocol"] = PROTOCOL
    answer = client.post("/api/v1/agent/enroll", json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer.json()["protocol"]) == (201, PROTOCOL)


async def test_the_agent_passes_the_way_out_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    import httpx

    problem = {"code": "agent_too_old", "detail": "Upgrade the agent: …"}
    transport = httpx.MockTransport(lambda request: httpx.Response(426, json=problem))
    made = AgentApi.__init__
    monkeypatch.setattr(
        AgentApi, "__init__", lambda self, server, credential: made(self, server, credential, transport)
    )
    settings = AgentSettings(
        server="http://127.0.0.1:1",
        data_directory=tmp_path,
        node_python="python",
        name="n",
        slots=1,
        join_token="x",
    )
    with pytest.raises(EnrollmentError, match="426 agent_too_old: Upgrade the agent"):
        await enroll(settings)


def test_a_field_that_an_old_agent_does_not_know_is_left_out_or_keeps_the_run_from_it(
    alice: Person, clock: Clock, tick: Callable[..., None]
) -> None:
    token, _ = fleet.create_join_token(default_pool(), now=clock.now)
    agent = OldAgent()
    agent.enroll(token)
    plain = alice.run()
    tick()
    (attempt,) = agent.send().attempts
    assert attempt.run_id == plain["id"]
    assert "std_of" not in attempt.spec["algorithm"]["advantage"]
    assert attempt.spec["trainer"]["dtype"] == "float32"  # what a newer agent takes on a node without GPUs
    newer = alice.run(algorithm={"advantage": {"std_of": "sample"}})
    tick()
    assert [found.run_id for found in agent.send().attempts] == [plain["id"]]
    assert "agent of a newer version" in alice.see(newer["id"])["pending_reason"]
