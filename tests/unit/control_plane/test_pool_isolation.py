"""What a team runs stays out of reach of other teams: nodes belong to pools, and pools to teams that may use them."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from control_plane.accounts.models import AuditEntry, Role, User
from control_plane.catalog.models import ModelCheck, ModelImport
from control_plane.fleet import pools
from control_plane.fleet.models import Node, Pool
from control_plane.runs.models import Attempt, Job, Run
from oolong.contracts.agent import EnrolRequest

VALUE = "k3y-that-nobody-may-see"
SECRETS: dict[str, Any] = {  # a loss of the team's own reads the secret in the trainer
    "secrets": [{"name": "WANDB", "jobs": ["trainer"], "variable": "WANDB_API_KEY"}],
    "algorithm": {"loss_function": "mine@1"},
}
LOSS = {"name": "mine", "kind": "loss", "source": "def loss(tokens, settings):\n    return None\n"}


@pytest.fixture
def red(alice: Any) -> Any:
    """Alice's team has a pool of its own, and a secret for trainers."""
    pools.bind_team(pools.create_pool("red-gpus", trainer_code=True), alice.project.team)
    assert alice.post("/functions", LOSS).status_code == 201
    body = {"name": "WANDB", "value": VALUE, "jobs": ["trainer"]}
    assert alice.post("/secrets", body).status_code == 201
    return alice


@pytest.fixture
def mallory(person: Any) -> Any:
    """Operator of a project of another team."""
    return person("mallory", team="blue", role=Role.OPERATOR)


def secrets_of(machine: Any, job: Job) -> Any:
    return machine.post(f"/jobs/{job.pk}/secrets", json.dumps({"epoch": job.attempt.epoch}))


def named_by(machine: Any) -> set[str]:
    """Runs of which the node is told anything."""
    return {attempt.run_id for attempt in machine.beat().attempts}


def gets_nothing(machine: Any, run: Any) -> None:
    """No job, no secret, no artifact of the run."""
    row = Run.objects.select_related("dataset_version").get(pk=run["id"])
    reply = machine.beat()
    assert all(attempt.run_id != run["id"] for attempt in reply.attempts)
    assert (reply.imports, reply.model_checks) == ([], [])
    assert row.dataset_version is not None
    assert machine.get(f"/artifacts/{row.dataset_version.sha256}").status_code == 404
    for job in Job.objects.filter(attempt__run=row).select_related("attempt"):
        assert secrets_of(machine, job).status_code in (404, 409)


# --- the attack: a node of one's own in a pool that others use


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_no_role_in_a_team_gives_a_node_that_runs_of_others_are_placed_on(
    alice: Any, person: Any, node: Any, start: Any, role: Role
) -> None:
    """Join with a node of one's own, cordon the honest one, wait for the next run: each step is refused."""
    assert alice.post("/secrets", {"name": "WANDB", "value": VALUE, "jobs": ["trainer"]}).status_code == 201
    assert alice.post("/functions", LOSS).status_code == 201
    pools.change_pool(pools.default_pool(), trainer_code=True)
    honest = node("honest")
    start(honest, **SECRETS)
    mallory = person("mallory", team="blue", role=role)
    for method, path, body in (
        ("POST", "/pools/default/enrolment-tokens", None),
        ("POST", f"/pool/nodes/{honest.node_id}/cordon", None),
        ("POST", f"/pool/nodes/{honest.node_id}/drain", None),
        ("POST", f"/pool/nodes/{honest.node_id}/uncordon", None),
        ("PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": 0}),
        ("PUT", f"/pools/default/teams/{mallory.project.team_id}/quota", {"limit_slots": None}),
        ("POST", "/pools/default/admins", {"username": "mallory"}),
        ("POST", "/pools/default/teams", {"team": "blue"}),
        ("PATCH", "/pools/default", {"trainer_code": False}),
        ("POST", "/pools", {"name": "mine"}),
    ):
        refused = mallory.call(method, path, body)
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope"), (
            path,
            refused.content,
        )
    made = mallory.post("/tokens", {"name": "more", "scopes": ["pool:admin"]})
    assert (made.status_code, made.json()["code"]) == (403, "more_than_yours")
    assert Node.objects.count() == 1 and Node.objects.get().intent == "ACTIVE"


def test_an_admin_of_one_pool_has_no_say_over_another(
    red: Any, mallory: Any, node: Any, start: Any, tick: Any
) -> None:
    """The same attack with a pool of one's own: what joins it gets the runs of its own teams and nothing else."""
    theirs = pools.create_pool("blue-gpus")
    pools.bind_team(theirs, mallory.project.team)
    pools.appoint_admin(theirs, mallory.user)
    honest = node("honest", pool="red-gpus")
    for path in (f"/pool/nodes/{honest.node_id}/cordon", "/pools/red-gpus/enrolment-tokens"):
        assert mallory.post(path).status_code == 404
    assert mallory.get("/pool?pool=red-gpus").status_code == 404
    assert "honest" not in mallory.get("/pool").content.decode()

    made = mallory.post("/pools/blue-gpus/enrolment-tokens").json()
    assert made["pool"] == "blue-gpus"
    own = node("own", pool="blue-gpus", slots=8)
    run = start(honest, placement={"pool": "red-gpus"}, **SECRETS)
    gets_nothing(own, run)
    second = red.run(placement={"pool": "red-gpus"}, **SECRETS, name="second")
    tick()
    gets_nothing(own, second)
    assert red.see(second["id"])["waiting_why"] == "needs 2 slots on one node; 0 of 2 are free on honest"


def test_a_default_pool_that_is_open_places_runs_of_others_only_where_its_managers_enrolled(
    alice: Any, mallory: Any, node: Any, tick: Any
) -> None:
    """The node of another pool never fills in for the default pool's, however idle it is."""
    theirs = pools.create_pool("blue-gpus")
    pools.bind_team(theirs, mallory.project.team)
    own = node("own", pool="blue-gpus", slots=8)
    run = alice.run()
    tick()
    assert alice.see(run["id"])["waiting_why"] == "no node has joined the pool"
    gets_nothing(own, run)


# --- a pool that is taken from a team


@pytest.fixture
def moved(red: Any, node: Any, start: Any) -> Any:
    """A run of the team on a node of its pool, which the team then loses."""
    machine = node("honest", pool="red-gpus", slots=4)
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    pools.unbind_team(Pool.objects.get(pk="red-gpus"), red.project.team)
    return machine, run


def test_after_the_unbinding_the_node_gets_nothing_more_and_the_run_goes_back_to_the_queue(
    red: Any, moved: Any, tick: Any, clock: Any
) -> None:
    machine, run = moved
    job = Job.objects.select_related("attempt__run__dataset_version").get(name="trainer")
    assert job.attempt.run.dataset_version is not None
    data = job.attempt.run.dataset_version.sha256
    refused = secrets_of(machine, job)
    assert (refused.status_code, refused.json()["code"]) == (409, "fenced")
    assert machine.get(f"/artifacts/{data}").status_code == 404
    tick()
    (attempt,) = machine.beat().attempts  # it may take its checkpoint
    assert [one.name for one in attempt.jobs if one.stop] == ["trainer"]
    for _ in range(4):
        machine.ship_all()
        machine.beat()
        tick(10)
    seen = red.see(run["id"])
    assert seen["status"] == "QUEUED"
    assert seen["waiting_why"].startswith("the team may not use pool red-gpus")
    gets_nothing(machine, run)
    assert red.get("/pool?pool=red-gpus").status_code == 404

    pools.bind_team(Pool.objects.get(pk="red-gpus"), red.project.team)
    tick(90)
    assert red.see(run["id"])["status"] == "STARTING"


def test_a_job_that_had_not_begun_is_never_told_to_the_node(red: Any, node: Any, tick: Any) -> None:
    machine = node("honest", pool="red-gpus")
    run = red.run(placement={"pool": "red-gpus"}, **SECRETS)
    tick()
    assert red.see(run["id"])["status"] == "STARTING"
    pools.unbind_team(Pool.objects.get(pk="red-gpus"), red.project.team)
    gets_nothing(machine, run)
    for _ in range(6):
        tick(10)
        gets_nothing(machine, run)
    assert red.see(run["id"])["status"] == "QUEUED"
    assert not Attempt.objects.exclude(status="ENDED").exists()


def test_closing_a_pool_takes_it_from_every_team_that_is_not_bound(
    alice: Any, mallory: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    pools.bind_team(pools.default_pool(), mallory.project.team)
    pools.change_pool(pools.default_pool(), all_teams=False)
    assert mallory.get("/pool").status_code == 200
    refused = alice.post("/runs", {"spec": alice.spec()})
    assert refused.json()["errors"][0]["code"] == "unknown_pool"
    tick()
    assert [job.name for job in machine.beat().attempts[0].jobs if job.stop] == ["trainer"]
    assert run["id"] in named_by(machine), "until it has its checkpoint"


def test_a_machine_that_joins_again_is_another_node_and_gets_what_its_new_pool_may(
    red: Any, mallory: Any, node: Any, start: Any
) -> None:
    theirs = pools.create_pool("blue-gpus")
    pools.bind_team(theirs, mallory.project.team)
    pools.appoint_admin(theirs, mallory.user)
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    token = mallory.post("/pools/blue-gpus/enrolment-tokens").json()["token"]
    enrolled = Client().post(
        "/api/v1/agent/enrol",
        data=msgspec.json.encode(EnrolRequest(name="honest", inventory=machine.inventory())),
        content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )
    assert enrolled.status_code == 201
    machine.node_id, machine.credential = enrolled.json()["node_id"], enrolled.json()["credential"]
    machine.jobs.clear()
    gets_nothing(machine, run)
    assert Node.objects.get(pk=machine.node_id).pool_id == "blue-gpus"


def test_imports_and_checks_of_models_go_to_nodes_of_the_teams_pools_only(
    red: Any, mallory: Any, node: Any
) -> None:
    """An import brings the token of a hub along, and a check the path of a directory."""
    theirs = pools.create_pool("blue-gpus")
    pools.bind_team(theirs, mallory.project.team)
    own = node("own", pool="blue-gpus")
    by_path = {"name": "more", "path": "/models/more"}
    assert red.post("/models", by_path).status_code == 422, "no node of its pools offers the directory"
    honest = node("honest", pool="red-gpus")
    asked = ModelImport.objects.create(
        project=red.project, created_by=red.user, name="m", hub="https://hub.test", hub_model="a/b", revision="main",
        state="QUEUED",
    )  # fmt: skip
    assert red.post("/models", by_path).status_code == 201
    check = ModelCheck.objects.get()
    reply = own.beat()
    assert (reply.imports, reply.model_checks) == ([], [])
    assert own.post(f"/imports/{asked.pk}/begin", b"").status_code == 404
    assert own.post(f"/model-checks/{check.pk}/begin", b"").status_code == 404
    reply = honest.beat()
    assert (reply.imports, reply.model_checks) == ([asked.pk], [check.pk])


# --- who manages a pool


def test_a_pool_admin_manages_the_nodes_and_quotas_of_that_pool(red: Any, person: Any, node: Any) -> None:
    bob = person("bob", role=Role.VIEWER)
    machine = node("honest", pool="red-gpus")
    pools.appoint_admin(Pool.objects.get(pk="red-gpus"), bob.user)
    assert bob.post(f"/pool/nodes/{machine.node_id}/cordon").json()["status"] == "CORDONED"
    quota = f"/pools/red-gpus/teams/{red.project.team_id}/quota"
    assert bob.call("PUT", quota, {"limit_slots": 1}).json()["limit_slots"] == 1
    assert bob.call("PUT", quota, {"limit_slots": None}).json()["limit_slots"] is None
    assert bob.get("/pool?pool=red-gpus").json()["may_manage"] is True
    seen = bob.get("/pool").json()
    assert (seen["name"], seen["may_manage"]) == ("default", False)
    assert "oolong pool admins add default bob" in seen["blocked_reason"]
    refused = bob.post("/pools/default/enrolment-tokens")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_pool_admin")
    stranger = bob.call("PUT", "/pools/red-gpus/teams/team_none/quota", {"limit_slots": 1})
    assert stranger.status_code == 404


def test_a_service_account_cannot_be_appointed(alice: Any) -> None:
    """Its tokens are in the hands of whoever manages the project."""
    User.objects.filter(pk=alice.user.pk).update(is_staff=True)
    made = alice.post("/service-accounts", {"name": "ci", "role": "operator"})
    name = User.objects.get(pk=made.json()["id"]).username
    refused = alice.post("/pools/default/admins", {"username": name})
    assert refused.status_code == 422 and "appoint a person" in refused.json()["errors"][0]["message"]
    unknown = alice.post("/pools/default/admins", {"username": "nobody"})
    assert unknown.json()["errors"][0]["pointer"] == "/username"


def test_the_installations_admin_makes_pools_by_the_command(alice: Any, person: Any, oolong: Any) -> None:
    User.objects.filter(pk=alice.user.pk).update(is_staff=True)
    person("bob", team="blue", role=Role.VIEWER)
    assert oolong("pool", "create", "lab", "--trainer-code").code == 0
    assert oolong("pool", "create", "lab").code != 0
    assert oolong("pool", "create", "No Name").code == 2
    assert "lab\tnamed teams\ton\tyes" in oolong("pool", "list").out
    assert oolong("pool", "teams", "add", "lab", "blue").code == 0
    assert oolong("pool", "quota", "blue", "3", "--pool", "lab").code == 0
    assert oolong("pool", "teams", "list", "lab").out.endswith("\tblue\t0\t3\n")
    assert oolong("pool", "quota", "blue", "none", "--pool", "lab").code == 0
    assert Pool.objects.get(pk="lab").quota_set.get().limit_slots is None
    assert oolong("pool", "quota", "blue", "many", "--pool", "lab").code == 2
    assert oolong("pool", "admins", "add", "lab", "bob").code == 0
    assert "\tbob\t" in oolong("pool", "admins", "list", "lab").out
    assert oolong("pool", "admins", "remove", "lab", "bob").code == 0
    assert oolong("pool", "set", "lab", "--trainer-code", "off", "--all-teams", "on").code == 0
    assert oolong("pool", "enrolment-token", "--pool", "lab").out.startswith("oolenrol_")
    assert oolong("pool", "teams", "remove", "lab", "blue").code == 0
    assert oolong("pool", "nodes", "--pool", "none").code == 2
    changed = Pool.objects.get(pk="lab")
    assert (changed.all_teams, changed.trainer_code) == (True, False)


def test_the_management_command_makes_pools_where_the_control_plane_runs(alice: Any, person: Any) -> None:
    person("bob", team="blue", role=Role.VIEWER)

    def pool(*words: str) -> str:
        said = io.StringIO()
        call_command("pool", *words, stdout=said)
        return said.getvalue().strip()

    assert (
        pool("create", "lab") == "lab: used by no team; admins: those of the installation; trainer code off"
    )
    pool("add-team", "lab", "blue")
    assert pool("add-admin", "lab", "bob") == "lab: used by blue; admins: bob; trainer code off"
    pool("remove-admin", "lab", "bob")
    pool("remove-team", "lab", "blue")
    pool("set", "lab", "--trainer-code", "on", "--all-teams", "on")
    assert "lab: used by all teams; admins: those of the installation; trainer code on" in pool("list")
    for words, says in (
        (("create", "lab"), "already"), (("create", "No Name"), "lower-case"), (("set", "none"), "no pool"),
        (("add-team", "lab", "none"), "no team"), (("add-admin", "lab", "none"), "no user"),
        (("remove-admin", "lab", "bob"), "no admin of the pool"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match=says):
            pool(*words)
    with pytest.raises(CommandError, match="pool create none"):
        call_command("enrolment_token", "--pool", "none")


# --- the audit log


def test_what_is_done_to_a_pool_is_in_the_log_of_every_project_that_it_touches(
    red: Any, mallory: Any, person: Any, node: Any
) -> None:
    sister = person("erin", project="second")
    pool = Pool.objects.get(pk="red-gpus")
    bob = person("bob", team="green", role=Role.VIEWER)
    pools.appoint_admin(pool, bob.user)
    pools.bind_team(pool, bob.project.team)
    machine = node("honest", pool="red-gpus")
    bob.post(f"/pool/nodes/{machine.node_id}/drain")
    bob.call("PUT", f"/pools/red-gpus/teams/{red.project.team_id}/quota", {"limit_slots": 2})
    bob.post("/pools/red-gpus/enrolment-tokens")

    def seen(who: Any) -> list[str]:
        found = AuditEntry.objects.filter(project=who.project.pk, data__pool="red-gpus").order_by("pk")
        return list(found.values_list("action", flat=True))

    everywhere = ["pool.enrolment_token", "node.enrol", "node.intent"]
    assert seen(red) == [
        "pool.bind_team",
        "pool.appoint_admin",
        *everywhere,
        "pool.quota",
        "pool.enrolment_token",
    ]
    assert seen(sister) == ["pool.appoint_admin", *everywhere, "pool.quota", "pool.enrolment_token"]
    assert seen(bob) == ["pool.bind_team", *everywhere, "pool.quota", "pool.enrolment_token"], (
        "what they did too"
    )
    assert seen(mallory) == []
    drained = AuditEntry.objects.get(project=red.project.pk, action="node.intent")
    assert (drained.actor_name, drained.data["after"]) == ("bob", "DRAINING")
