"""Rewards that ask a service: only origins that the installation lists, with secrets that an admin allowed there."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from control_plane.accounts.models import ProjectSecret
from control_plane.experiments.models import RewardTest
from control_plane.runs.models import Run
from oolong.contracts.agent import SecretsRequest
from oolong.contracts.lifecycle import EndReason

VALUE = "k3y-that-nobody-may-see"
URL = "https://judge.test:8000/v1/chat/completions"
ORIGIN = "https://judge.test:8000"
HTTP = {"name": "http", "options": {"url": URL, "secret": "KEY"}}
JUDGE = {"name": "judge", "options": {"url": URL, "secret": "KEY", "model": "m", "template": "{response}"}}
COMPOSITE = {"name": "composite", "options": {"parts": [{"name": "math"}, HTTP]}}


@pytest.fixture
def allowed(alice: Any, settings: Any) -> Any:
    """Alice's project, with a listed origin and a secret for it."""
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, reward_origins=[ORIGIN])
    for body in (
        {"name": "KEY", "value": VALUE, "jobs": ["reward"], "hosts": ["judge.test:8000"]},
        {"name": "ELSEWHERE", "value": VALUE, "jobs": ["reward"], "hosts": ["hub.test"]},
        {"name": "TRAINERS", "value": VALUE, "jobs": ["trainer"], "hosts": ["judge.test"]},
    ):
        assert alice.post("/secrets", body).status_code == 201
    return alice


def request_secrets(machine: Any, job: str) -> Any:
    body = msgspec.json.encode(SecretsRequest(epoch=1, incarnation=0))
    return machine.post(f"/jobs/{machine.job(job)}/secrets", body)


@pytest.mark.parametrize("reward", [JUDGE, COMPOSITE], ids=["judge", "composite"])
def test_the_reward_job_is_given_the_origins_and_the_secret_and_no_other_job_is(
    allowed: Any, node: Any, start: Any, reward: Any
) -> None:
    machine = node()
    run = start(machine, reward=reward)
    (attempt,) = machine.reply.attempts
    assert attempt.reward_origins == [ORIGIN]
    assert {job.name: job.secrets for job in attempt.jobs} == {
        "controller": [], "reward": ["REWARD_SECRET_KEY"], "rollout-0": [], "trainer": []
    }  # fmt: skip
    assert request_secrets(machine, "reward").json() == {"variables": {"REWARD_SECRET_KEY": VALUE}}
    assert request_secrets(machine, "trainer").json() == {"variables": {}}
    assert [found["id"] for found in allowed.get("/runs?secret=KEY").json()["data"]] == [run["id"]]


def test_a_run_without_such_a_reward_is_given_no_origins(allowed: Any, node: Any, start: Any) -> None:
    machine = node()
    start(machine)
    assert machine.reply.attempts[0].reward_origins == []


def test_the_reward_of_evaluations_is_checked_and_given_its_secret_too(
    allowed: Any, node: Any, start: Any
) -> None:
    machine = node()
    run = start(machine, evaluation={"reward": HTTP, "prompts": 8})
    assert request_secrets(machine, "reward").json() == {"variables": {"REWARD_SECRET_KEY": VALUE}}
    assert [found["id"] for found in allowed.get("/runs?secret=KEY").json()["data"]] == [run["id"]]


@pytest.mark.parametrize(
    ("change", "pointer", "code", "says"),
    [
        ({"url": "https://other.test/x"}, "url", "address_blocked",
         "add https://other.test to OOLONG_REWARD_ORIGINS"),
        ({"url": "https://judge.test/x"}, "url", "address_blocked", f"allowed origins ({ORIGIN})"),
        ({"url": "http://169.254.169.254/latest"}, "url", "address_blocked", "ask an installation admin"),
        ({"secret": "NONE"}, "secret", "unknown_secret", "oolong secret set NONE --job reward"),
        ({"secret": "ELSEWHERE"}, "secret", "secret_not_for_host", "is not for 'judge.test:8000' but for hub.test"),
        ({"secret": "TRAINERS"}, "secret", "secret_not_for_job", "--job trainer --job reward"),
    ],
)  # fmt: skip
def test_what_no_admin_allowed_is_refused_at_its_field(
    allowed: Any, change: Any, pointer: str, code: str, says: str
) -> None:
    options = {**HTTP["options"], "secret": None, **change}  # type: ignore[dict-item]
    reply = allowed.post("/runs", {"spec": allowed.spec(reward={"name": "http", "options": options})})
    faults = {fault["code"]: fault for fault in reply.json()["errors"]}
    assert faults.keys() == {code}
    assert faults[code]["pointer"] == f"/reward/options/{pointer}" and says in faults[code]["message"]
    assert not Run.objects.exists()


def test_a_part_of_a_composite_is_checked_at_its_own_place(allowed: Any) -> None:
    part = {"name": "http", "options": {"url": "https://other.test/"}}
    reward = {"name": "composite", "options": {"parts": [{"name": "math"}, part]}}
    reply = allowed.post("/runs", {"spec": allowed.spec(reward=reward, model={"base_model": "none"})})
    assert [(fault["pointer"], fault["code"]) for fault in reply.json()["errors"]] == [
        ("/model/base_model", "unknown_model"),
        ("/reward/options/parts/1/options/url", "address_blocked"),
    ]


def test_a_reward_test_is_refused_for_the_same_reasons(allowed: Any) -> None:
    spec = allowed.spec()
    body = {
        "dataset": spec["dataset"]["version"], "model": spec["model"]["base_model"],
        "reward": {"name": "http", "options": {"url": "https://other.test/"}},
    }  # fmt: skip
    reply = allowed.post("/reward-tests", body)
    assert [(fault["pointer"], fault["code"]) for fault in reply.json()["errors"]] == [
        ("/reward/options/url", "address_blocked")
    ]


def test_a_host_that_is_taken_from_the_secret_stops_the_next_start(
    allowed: Any, node: Any, start: Any
) -> None:
    machine = node()
    start(machine, reward=HTTP)
    ProjectSecret.objects.filter(name="KEY").update(hosts=["hub.test"])
    reply = request_secrets(machine, "reward")
    assert (reply.status_code, reply.json()["code"]) == (409, EndReason.SECRET_MISSING)
    assert "not for 'judge.test:8000'" in reply.json()["detail"] and VALUE not in reply.content.decode()


def test_a_reward_that_cannot_follow_the_rollouts_is_a_warning_once_both_are_measured(allowed: Any) -> None:
    spec = allowed.spec()
    names = {"dataset": spec["dataset"]["version"], "model": spec["model"]["base_model"]}

    def warnings() -> list[str]:
        reply = allowed.post("/runs/validate", {"spec": allowed.spec(reward=HTTP)}).json()
        return [found["code"] for found in reply["warnings"]]

    assert "reward_slower_than_rollouts" not in warnings()
    test = allowed.post("/reward-tests", {**names, "reward": HTTP}).json()
    RewardTest.objects.filter(pk=test["id"]).update(report={"latency_seconds": {"p50": 2000.0}})
    earlier = allowed.run()
    assert "reward_slower_than_rollouts" not in warnings()
    Run.objects.filter(pk=earlier["id"]).update(metrics={"time/step_seconds": 1.0})
    assert "reward_slower_than_rollouts" in warnings()
