"""A run's jobs are given the secrets that it names, by the node that holds them, and nothing shows a value."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from control_plane.accounts.models import AuditEntry, ProjectSecret, Role
from control_plane.fleet import pools
from control_plane.runs.models import Attempt, Run
from control_plane.telemetry.models import LogChunk
from oolong.contracts.agent import SecretsReply, SecretsRequest
from oolong.contracts.lifecycle import EndReason

VALUE = "k3y-that-nobody-may-see"
NAMED = [{"name": "WANDB", "jobs": ["trainer"], "variable": "WANDB_API_KEY"}]
LOSS = "def loss(inputs, settings):\n    return None\n"
WITH_LOSS = {"loss_function": "mine@1"}  # without code of its own in the trainer a run may have no secret


@pytest.fixture
def kept(alice: Any) -> Any:
    """Alice's project, with a secret for trainers and one that an import alone may send."""
    pools.change_pool(pools.default_pool(), trainer_code=True)
    loss = {"name": "mine", "kind": "loss", "source": LOSS}
    assert alice.post("/functions", loss).status_code == 201
    for body in (
        {"name": "WANDB", "value": VALUE, "jobs": ["trainer"]},
        {"name": "HUB", "value": VALUE, "hosts": ["hub.test"]},
    ):
        assert alice.post("/secrets", body).status_code == 201
    return alice


def ask(machine: Any, job: str, *, epoch: int = 1, incarnation: int = 0) -> Any:
    body = msgspec.json.encode(SecretsRequest(epoch=epoch, incarnation=incarnation))
    return machine.post(f"/jobs/{machine.job(job)}/secrets", body)


def test_the_node_that_starts_the_named_job_is_given_its_variable_and_no_other_job_is(
    kept: Any, node: Any, start: Any, clock: Any
) -> None:
    machine = node()
    run = start(machine, secrets=NAMED, algorithm=WITH_LOSS)
    (attempt,) = machine.reply.attempts
    assert {job.name: job.secrets for job in attempt.jobs} == {
        "controller": [], "reward": [], "rollout-0": [], "trainer": ["WANDB_API_KEY"]
    }  # fmt: skip
    reply = ask(machine, "trainer")
    assert (reply.status_code, reply.json()) == (200, {"variables": {"WANDB_API_KEY": VALUE}})
    assert msgspec.json.decode(reply.content, type=SecretsReply).variables == {"WANDB_API_KEY": VALUE}
    assert reply.headers["Cache-Control"] == "no-store"
    for other in ("controller", "reward", "rollout-0"):
        assert ask(machine, other).json() == {"variables": {}}
    used = AuditEntry.objects.get(action="secret.use")
    said = f"trainer of run 'a run' ({run['id']}), attempt 1, incarnation 0"
    assert (used.target_name, used.message, used.project) == ("WANDB", said, kept.project.pk)
    assert (used.actor_kind, used.actor_id) == ("node", machine.node_id)
    assert ProjectSecret.objects.get(name="WANDB").last_used_at == clock.now
    assert ProjectSecret.objects.get(name="HUB").last_used_at is None


def test_runs_are_found_by_the_secret_that_they_name(kept: Any, node: Any, start: Any) -> None:
    run = start(node(), secrets=NAMED, algorithm=WITH_LOSS)
    kept.run(name="without")
    assert [found["id"] for found in kept.get("/runs?secret=WANDB").json()["data"]] == [run["id"]]
    assert kept.get("/runs?secret=HUB").json()["data"] == []


def test_no_value_is_in_anything_that_can_be_read(kept: Any, node: Any, start: Any) -> None:
    machine = node()
    run = start(machine, secrets=NAMED, algorithm=WITH_LOSS)
    assert ask(machine, "trainer").status_code == 200
    machine.beat()
    shown = [
        kept.see(run["id"]), kept.events(run["id"]), kept.get("/secrets").json(), kept.get("/audit").json(),
        kept.post("/runs/plan", {"spec": kept.spec(secrets=NAMED, algorithm=WITH_LOSS)}).json(),
        msgspec.to_builtins(machine.reply), list(Run.objects.values()), list(Attempt.objects.values()),
        list(LogChunk.objects.values()),
    ]  # fmt: skip
    assert VALUE not in json.dumps(shown, default=str)
    assert shown[0]["spec"]["secrets"] == NAMED


@pytest.mark.parametrize(
    ("secrets", "pointer", "code", "says"),
    [
        ([{"name": "NONE", "jobs": ["trainer"]}], "/secrets/0/name", "unknown_secret", "set NONE --job trainer"),
        ([*NAMED, {"name": "HUB", "jobs": ["trainer"]}], "/secrets/1/jobs", "secret_not_for_job", "for no job"),
        ([{"name": "HUB", "jobs": ["trainer"]}], "/secrets/0/jobs", "secret_not_for_job", "set HUB --job trainer"),
        ([{"name": "WANDB", "jobs": ["trainer", "reward"]}], "/secrets/0/jobs", "no_user_code",
         "in the reward job: uploaded rewards, workflows and agents run in sandboxes"),
        ([{"name": "WANDB", "jobs": ["controller", "rollout"]}], "/secrets/0/jobs", "no_user_code",
         "in the controller and rollout job"),
        ([{"name": "WANDB", "jobs": ["trainer"], "variable": "LD_PRELOAD"}], "/secrets/0/variable",
         "reserved_variable", "LD_PRELOAD"),
    ],
)  # fmt: skip
def test_a_run_that_may_not_have_a_secret_is_not_made(
    kept: Any, secrets: Any, pointer: str, code: str, says: str
) -> None:
    for path in ("/runs", "/runs/validate"):
        reply = kept.post(path, {"spec": kept.spec(secrets=secrets, algorithm=WITH_LOSS)})
        faults = reply.json()["errors"]
        assert [(fault["pointer"], fault["code"]) for fault in faults] == [(pointer, code)], (path, faults)
        assert says in faults[0]["message"]
    assert not Run.objects.exists()


def test_a_trainer_without_a_loss_of_ones_own_reads_no_secret(kept: Any) -> None:
    reply = kept.post("/runs", {"spec": kept.spec(secrets=NAMED)})
    (fault,) = reply.json()["errors"]
    assert (reply.status_code, fault["pointer"], fault["code"]) == (422, "/secrets/0/jobs", "no_user_code")
    assert "algorithm.loss_function" in fault["message"]
    assert not Run.objects.exists()


def test_an_editor_uses_what_an_admin_allowed_and_another_project_has_to_have_its_own(
    kept: Any, person: Any, alice: Any
) -> None:
    dave = person("dave", role=Role.EDITOR)
    run = dave.run(secrets=NAMED, algorithm=WITH_LOSS)
    assert dave.post("/secrets", {"name": "WANDB", "value": VALUE, "jobs": ["reward"]}).status_code == 403
    viewer = person("vera", role=Role.VIEWER)
    assert viewer.post("/runs", {"spec": viewer.spec(secrets=NAMED, algorithm=WITH_LOSS)}).status_code == 403
    copied = dave.post(f"/runs/{run['id']}/clone", {"changes": {"name": "again"}})
    assert (copied.status_code, copied.json()["spec"]["secrets"]) == (201, NAMED), copied.content
    other = person("alice", project="other")
    refused = other.post("/runs", {"spec": kept.see(run["id"])["spec"]})
    codes = {fault["pointer"]: fault["code"] for fault in refused.json()["errors"]}
    assert (refused.status_code, codes["/secrets/0/name"]) == (422, "unknown_secret")
    kept.call("DELETE", "/secrets/WANDB")
    refused = dave.post(f"/runs/{run['id']}/clone", {"changes": {"name": "third"}})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "unknown_secret")


def test_only_the_lease_of_now_opens_a_secret(kept: Any, node: Any, start: Any) -> None:
    machine, other = node(), node("node-2", slots=0)
    run = start(machine, secrets=NAMED, algorithm=WITH_LOSS)
    foreign = other.post(f"/jobs/{machine.job('trainer')}/secrets", '{"epoch": 1}')
    nothing = other.post("/jobs/job_nothing/secrets", '{"epoch": 1}')
    assert (foreign.status_code, nothing.status_code) == (404, 404)
    for epoch in (0, 2):
        assert ask(machine, "trainer", epoch=epoch).json()["code"] == "stale_epoch"
    assert machine.post(f"/jobs/{machine.job('trainer')}/secrets", "{}").status_code == 422
    assert kept.call("POST", f"/agent/jobs/{machine.job('trainer')}/secrets", {"epoch": 1}).status_code == 401
    kept.post(f"/runs/{run['id']}/stop")
    assert ask(machine, "trainer").json()["code"] == "stale_epoch", "it is not to be started any more"
    assert kept.post(f"/runs/{run['id']}/force-stop").json()["status"] == "STOPPED"
    assert ask(machine, "trainer").json()["code"] == "stale_epoch"
    assert not AuditEntry.objects.filter(action="secret.use").exists()


def test_a_job_takes_the_value_of_the_moment_and_a_secret_that_is_gone_is_named(
    kept: Any, node: Any, start: Any
) -> None:
    machine = node()
    start(machine, secrets=NAMED, algorithm=WITH_LOSS)
    kept.post("/secrets", {"name": "WANDB", "value": "a rotated value", "jobs": ["trainer"]})
    assert ask(machine, "trainer", incarnation=1).json()["variables"] == {"WANDB_API_KEY": "a rotated value"}
    kept.post("/secrets", {"name": "WANDB", "value": "for something else", "jobs": ["reward"]})
    reply = ask(machine, "trainer")
    assert (reply.status_code, reply.json()["code"]) == (409, "secret_missing")
    assert (
        "WANDB, which trainer needs as WANDB_API_KEY, is no longer allowed for such jobs"
        in reply.json()["detail"]
    )
    kept.call("DELETE", "/secrets/WANDB")
    reply = ask(machine, "trainer")
    assert (
        "was deleted; ask an admin to set it (oolong secret set WANDB --job trainer)"
        in reply.json()["detail"]
    )


def test_a_run_whose_secret_is_gone_fails_with_the_cause_and_is_not_tried_again(
    kept: Any, node: Any, tick: Any
) -> None:
    machine = node()
    run = kept.run(secrets=NAMED, algorithm=WITH_LOSS)
    tick()
    machine.beat()
    gone = "the secret WANDB was deleted"
    machine.exit(machine.job("trainer"), EndReason.SECRET_MISSING, code=1, message=gone)
    for _ in range(3):
        machine.ship_all()
        machine.beat()
        tick()
    ended = kept.see(run["id"])
    assert (ended["status"], ended["reason"], ended["fault"]) == ("FAILED", "secret_missing", "config")
    assert (ended["reason_message"], ended["attempt_number"]) == (f"trainer: {gone}", 1)
    assert kept.post(f"/runs/{run['id']}/retry").status_code == 201


@pytest.mark.parametrize(
    ("change", "pointer"),
    [({"value": "7 chars"}, "/value"), ({"value": "  padded \n"}, "/value"), ({"jobs": ["engine"]}, "/jobs/0"),
     ({"jobs": "trainer"}, "/jobs")],
)  # fmt: skip
def test_a_secret_that_could_not_be_redacted_from_logs_is_rejected(
    alice: Any, change: Any, pointer: str
) -> None:
    reply = alice.post("/secrets", {"name": "KEY", "value": VALUE, "jobs": ["trainer"], **change})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, pointer)
    assert change.get("value", "nothing") not in reply.content.decode()
    assert not ProjectSecret.objects.exists()
    assert alice.post("/secrets", {"name": "KEY", "value": "7 chars"}).status_code == 201, "it is for no job"


def test_the_command_says_which_jobs_may_have_it(oolong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO(VALUE + "\n"))
    assert oolong("secret", "set", "WANDB", "--job", "trainer", "--job", "reward").code == 0
    assert json.loads(oolong("secret", "list", "--json").out)[0]["jobs"] == ["reward", "trainer"]
    assert "reward,trainer" in oolong("secret", "list").out
    assert oolong("secret", "set", "WANDB", "--job", "engine").code == 2
