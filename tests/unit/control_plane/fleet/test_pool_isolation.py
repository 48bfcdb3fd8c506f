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
from control_plane.agent_api import job_api, services
from control_plane.assets.models import ModelCheck, ModelImport
from control_plane.experiments.models import Sweep
from control_plane.fleet import pools
from control_plane.fleet.models import Lease, Node, Pool, PoolAdmin, PoolTeam, Quota
from control_plane.runs.models import Attempt, Job, Run
from oolong.contracts.agent import PROTOCOL, EnrollRequest, HeartbeatRequest
from tests.unit.control_plane.conftest import ready_model

VALUE = "k3y-that-nobody-may-see"
SECRETS: dict[str, Any] = {  # a loss of the team's own reads the secret in the trainer
    "secrets": [{"name": "WANDB", "jobs": ["trainer"], "variable": "WANDB_API_KEY"}],
    "algorithm": {"loss_function": "mine@1"},
}
LOSS = {"name": "mine", "kind": "loss", "source": "def loss(inputs, settings):\n    return None\n"}


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
    """Runs that the node learns of."""
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
        ("POST", "/pools/default/join-tokens", None),
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
    assert (made.status_code, made.json()["code"]) == (403, "scope_exceeds_caller")
    assert Node.objects.count() == 1 and Node.objects.get().intent == "ACTIVE"


def test_an_admin_of_one_pool_has_no_say_over_another(
    red: Any, mallory: Any, node: Any, start: Any, tick: Any
) -> None:
    """The same attack with a pool of one's own: what joins it gets the runs of its own teams and nothing else."""
    theirs = pools.create_pool("blue-gpus")
    pools.bind_team(theirs, mallory.project.team)
    pools.appoint_admin(theirs, mallory.user)
    honest = node("honest", pool="red-gpus")
    for path in (f"/pool/nodes/{honest.node_id}/cordon", "/pools/red-gpus/join-tokens"):
        assert mallory.post(path).status_code == 404
    assert mallory.get("/pool?pool=red-gpus").status_code == 404
    assert "honest" not in mallory.get("/pool").content.decode()

    made = mallory.post("/pools/blue-gpus/join-tokens").json()
    assert made["pool"] == "blue-gpus"
    own = node("own", pool="blue-gpus", slots=8)
    run = start(honest, placement={"pool": "red-gpus"}, **SECRETS)
    gets_nothing(own, run)
    second = red.run(placement={"pool": "red-gpus"}, **SECRETS, name="second")
    tick()
    gets_nothing(own, second)
    assert red.see(second["id"])["pending_reason"] == "needs 2 slots on one node; 0 of 2 are free on honest"


def test_a_default_pool_that_is_open_places_runs_of_others_only_where_its_managers_enrolled(
    alice: Any, mallory: Any, node: Any, tick: Any
) -> None:
    """The node of another pool never fills in for the default pool's, however idle it is."""
    theirs = pools.create_pool("blue-gpus")
    pools.bind_team(theirs, mallory.project.team)
    own = node("own", pool="blue-gpus", slots=8)
    run = alice.run()
    tick()
    assert alice.see(run["id"])["pending_reason"] == "the pool has no nodes"
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
    assert (refused.status_code, refused.json()["code"]) == (409, "stale_epoch")
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
    assert seen["pending_reason"].startswith("the team may not use pool red-gpus")
    gets_nothing(machine, run)
    assert red.get("/pool?pool=red-gpus").status_code == 404

    pools.bind_team(Pool.objects.get(pk="red-gpus"), red.project.team)
    tick(90)
    assert red.see(run["id"])["status"] == "STARTING"


def test_a_job_that_had_not_begun_is_never_sent_to_the_node(red: Any, node: Any, tick: Any) -> None:
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
    token = mallory.post("/pools/blue-gpus/join-tokens").json()["token"]
    enrolled = Client().post(
        "/api/v1/agent/enroll",
        data=msgspec.json.encode(EnrollRequest(name="honest", inventory=machine.inventory())),
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
    refused = bob.post("/pools/default/join-tokens")
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
    assert oolong("pool", "teams", "list", "lab").out.endswith("\tblue\t0\t0\t3\t-\n")
    assert oolong("pool", "quota", "blue", "none", "--pool", "lab").code == 0
    assert Pool.objects.get(pk="lab").quota_set.get().limit_slots is None
    assert oolong("pool", "quota", "blue", "many", "--pool", "lab").code == 2
    assert oolong("pool", "admins", "add", "lab", "bob").code == 0
    assert "\tbob\t" in oolong("pool", "admins", "list", "lab").out
    assert oolong("pool", "admins", "remove", "lab", "bob").code == 0
    assert oolong("pool", "set", "lab", "--trainer-code", "off", "--all-teams", "on").code == 0
    assert oolong("node", "join-token", "--pool", "lab").out.startswith("ooljoin_")
    assert oolong("pool", "teams", "remove", "lab", "blue").code == 0
    assert oolong("node", "list", "--pool", "none").code == 2
    changed = Pool.objects.get(pk="lab")
    assert (changed.all_teams, changed.trainer_code) == (True, False)


def test_the_table_of_nodes_begins_with_the_id_that_the_other_commands_take(oolong: Any, node: Any) -> None:
    made = node("gpu-7", slots=1)
    row = oolong("node", "list").out.split("\t")
    assert row[:2] == [made.node_id, "gpu-7"]
    assert oolong("node", "drain", row[0]).code == 0
    assert oolong("node", "uncordon", row[0]).code == 0


def test_the_management_command_makes_pools_where_the_control_plane_runs(alice: Any, person: Any) -> None:
    person("bob", team="blue", role=Role.VIEWER)

    def pool(*words: str) -> str:
        said = io.StringIO()
        call_command("pool", *words, stdout=said)
        return said.getvalue().strip()

    assert pool("create", "lab") == "lab: used by no team; admins: installation admins only; trainer code off"
    pool("add-team", "lab", "blue")
    assert pool("add-admin", "lab", "bob") == "lab: used by blue; admins: bob; trainer code off"
    pool("remove-admin", "lab", "bob")
    pool("remove-team", "lab", "blue")
    pool("set", "lab", "--trainer-code", "on", "--all-teams", "on")
    assert "lab: used by all teams; admins: installation admins only; trainer code on" in pool("list")
    for words, says in (
        (("create", "lab"), "already"), (("create", "No Name"), "lowercase"), (("set", "none"), "no pool"),
        (("add-team", "lab", "none"), "no team"), (("add-admin", "lab", "none"), "no user"),
        (("remove-admin", "lab", "bob"), "no admin of the pool"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match=says):
            pool(*words)
    with pytest.raises(CommandError, match="pool create none"):
        call_command("join_token", "--pool", "none")


# --- a node that is revoked


def revoke(who: Any, machine: Any) -> Any:
    return who.post(f"/pool/nodes/{machine.node_id}/revoke")


@pytest.fixture
def admin_of_red(red: Any, person: Any) -> Any:
    """Erin manages red's pool, and is of another team."""
    erin = person("erin", team="green", role=Role.VIEWER)
    pools.appoint_admin(Pool.objects.get(pk="red-gpus"), erin.user)
    return erin


def test_every_request_of_a_revoked_node_is_refused_and_says_why(
    red: Any, admin_of_red: Any, node: Any, start: Any
) -> None:
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    data = Run.objects.select_related("dataset_version").get(pk=run["id"]).dataset_version
    job = Job.objects.select_related("attempt").get(name="trainer")
    assert revoke(admin_of_red, machine).json()["status"] == "REVOKED"
    assert data is not None
    attempts = f"/attempts/{job.attempt_id}/checkpoints"
    announced = {"step": 1, "manifest_sha256": "0" * 64, "tar_sha256": "0" * 64, "bytes": 1, "epoch": 1}
    for refused in (
        machine.post("/heartbeat", b"{}"),
        machine.get(f"/artifacts/{data.sha256}"),
        secrets_of(machine, job),
        machine.post(attempts, json.dumps(announced)),
        machine.post("/telemetry", b""),
        machine.post("/imports/imp_none/begin", b""),
        machine.post("/model-checks/chk_none/begin", b""),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "node_revoked"), refused.content
    assert "new join token" in refused.json()["detail"]


def test_runs_of_a_revoked_node_go_on_elsewhere_and_none_fails(
    red: Any, admin_of_red: Any, node: Any, start: Any, tick: Any, django_capture_on_commit_callbacks: Any
) -> None:
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    with django_capture_on_commit_callbacks(execute=True):
        assert revoke(admin_of_red, machine).status_code == 200
    seen = red.see(run["id"])
    assert seen["status"] == "QUEUED", "at once, by the request itself"
    attempt = Attempt.objects.get()
    assert (attempt.status, attempt.reason) == ("ENDED", "node_revoked"), "stale_epoch"
    assert not Lease.objects.filter(released_at=None).exists()
    assert "honest was revoked" in [event["message"] for event in red.events(run["id"])]
    page = red.get("/pool?pool=red-gpus").json()
    assert (page["nodes"], page["slots"]) == ([], [])
    tick()
    assert red.see(run["id"])["pending_reason"] == "the pool has no nodes"
    other = node("other", pool="red-gpus")
    tick()
    assert red.see(run["id"])["status"] == "STARTING"
    assert [one.run_id for one in other.beat().attempts] == [run["id"]]


def test_a_run_is_not_failed_for_what_a_revoked_node_held_back(
    red: Any, admin_of_red: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    """Neither a checkpoint that never came, nor twenty attempts lost before, is held against the run."""
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    attempt = Attempt.objects.get()
    commit_checkpoint(run["id"], attempt.pk, step=5)
    Attempt.objects.update(number=21)
    Run.objects.update(attempt_number=21)
    for number in range(1, 21):
        Attempt.objects.create(
            run_id=run["id"], number=number, epoch=0, node_id=machine.node_id, token="", ports={},
            created_at=attempt.created_at, status="ENDED", reason="node_lost",
        )  # fmt: skip
    revoke(admin_of_red, machine)
    tick()
    assert red.see(run["id"])["status"] in ("RECOVERING", "QUEUED")
    tick()
    assert red.see(run["id"])["status"] == "QUEUED"


@pytest.mark.parametrize(("act", "status"), [("pause", "PAUSED"), ("stop", "STOPPED")])
def test_a_run_that_pauses_or_stops_does_so_without_the_revoked_node(
    red: Any, admin_of_red: Any, node: Any, start: Any, tick: Any, act: str, status: str
) -> None:
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    assert red.post(f"/runs/{run['id']}/{act}").status_code in (200, 202)
    revoke(admin_of_red, machine)
    tick()
    assert red.see(run["id"])["status"] == status


def test_a_heartbeat_under_way_does_not_bring_a_revoked_node_back(
    red: Any, admin_of_red: Any, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It authenticated before the revocation and is taken after it: at its begin, and when it has waited."""
    first, second = node("first", pool="red-gpus"), node("second", pool="red-gpus")
    asked = HeartbeatRequest(inventory=first.inventory(), jobs=[], started_at=0.0, protocol=PROTOCOL)

    def before(machine: Any, module: Any, name: str) -> None:
        real = getattr(module, name)

        def late(*given: Any, **named: Any) -> Any:
            monkeypatch.setattr(module, name, real)
            assert revoke(admin_of_red, machine).status_code == 200
            return real(*given, **named)

        monkeypatch.setattr(module, name, late)

    before(first, services, "process_heartbeat")
    refused = first.post("/heartbeat", msgspec.json.encode(asked))
    assert (refused.status_code, refused.json()["code"]) == (403, "node_revoked")
    before(second, job_api, "_wait_for_change")
    refused = second.post("/heartbeat?wait=5", msgspec.json.encode(asked))
    assert (refused.status_code, refused.json()["code"]) == (403, "node_revoked")
    assert {(found.liveness, found.pool_id) for found in Node.objects.all()} == {("LOST", None)}


def test_a_revoked_machine_joins_again_as_a_new_node(
    red: Any, admin_of_red: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    before = machine.node_id
    revoke(admin_of_red, machine)
    tick()
    tick()
    token = admin_of_red.post("/pools/red-gpus/join-tokens").json()["token"]
    enrolled = Client().post(
        "/api/v1/agent/enroll",
        data=msgspec.json.encode(EnrollRequest(name="honest", inventory=machine.inventory())),
        content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )
    machine.node_id, machine.credential = enrolled.json()["node_id"], enrolled.json()["credential"]
    machine.jobs.clear()
    machine.beat()
    tick()
    assert run["id"] in named_by(machine)
    assert machine.node_id != before
    assert [found["id"] for found in red.get("/pool?pool=red-gpus").json()["nodes"]] == [machine.node_id]
    assert admin_of_red.post(f"/pool/nodes/{before}/uncordon").status_code == 404, "there is no way back"
    assert admin_of_red.post(f"/pool/nodes/{before}/revoke").status_code == 404


def test_only_those_who_manage_the_pool_revoke_its_nodes_and_delete_none(
    red: Any, admin_of_red: Any, mallory: Any, person: Any, node: Any
) -> None:
    machine = node("honest", pool="red-gpus")
    theirs = pools.create_pool("blue-gpus")
    pools.bind_team(theirs, mallory.project.team)
    pools.appoint_admin(theirs, mallory.user)
    assert revoke(mallory, machine).status_code == 404
    for role in Role:
        colleague = person(f"red-{role}", role=role)
        refused = revoke(colleague, machine)
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    pools.appoint_admin(theirs, red.user)
    assert (revoke(red, machine).status_code, revoke(red, machine).json()["code"]) == (403, "not_pool_admin")
    for who in (red, mallory, admin_of_red):
        for name in ("red-gpus", "blue-gpus"):
            refused = who.call("DELETE", f"/pools/{name}")
            assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert Node.objects.get().pool_id == "red-gpus" and Pool.objects.count() == 3


# --- a pool that is deleted


@pytest.fixture
def root(person: Any) -> Any:
    """Admin of the installation."""
    root = person("root", team="ops")
    User.objects.filter(pk=root.user.pk).update(is_staff=True)
    return root


def test_a_pool_that_something_uses_is_not_deleted_and_says_what_does(
    red: Any, admin_of_red: Any, root: Any, node: Any, start: Any, tick: Any
) -> None:
    def refused(name: str) -> str:
        reply = root.call("DELETE", f"/pools/{name}")
        assert (reply.status_code, reply.json()["code"]) == (409, "pool_in_use")
        detail: str = reply.json()["detail"]
        return detail

    assert "runs that name no pool" in refused("default")
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    assert "1 node (honest); revoke them first: oolong node revoke NODE" in refused("red-gpus")
    revoke(admin_of_red, machine)
    assert "of team red (1)" in refused("red-gpus"), "its attempt is about to end"
    tick()
    tick()
    assert red.see(run["id"])["status"] == "QUEUED"
    assert "of team red (1)" in refused("red-gpus")
    assert red.post(f"/runs/{run['id']}/pause").status_code in (200, 202)
    assert "of team red (1)" in refused("red-gpus"), "it may be resumed"
    assert red.post(f"/runs/{run['id']}/stop").status_code in (200, 202)
    sweep = Sweep.objects.create(
        project=red.project, created_by=red.user, name="s", spec={"placement": {"pool": "red-gpus"}}, plan={},
        max_parallel=1, status="RUNNING", created_at=Attempt.objects.get().created_at,
    )  # fmt: skip
    assert "active sweeps of team red (1) name it" in refused("red-gpus")
    Sweep.objects.filter(pk=sweep.pk).update(status="CANCELLED")
    assert root.call("DELETE", "/pools/red-gpus").status_code == 204


def test_a_deleted_pool_takes_its_teams_admins_quotas_and_tokens_along(
    red: Any, admin_of_red: Any, root: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node("honest", pool="red-gpus")
    run = start(machine, placement={"pool": "red-gpus"}, **SECRETS)
    red.post(f"/runs/{run['id']}/cancel")
    admin_of_red.call("PUT", f"/pools/red-gpus/teams/{red.project.team_id}/quota", {"limit_slots": 2})
    token = admin_of_red.post("/pools/red-gpus/join-tokens").json()["token"]
    revoke(admin_of_red, machine)
    tick()
    tick()
    assert root.call("DELETE", "/pools/red-gpus").status_code == 204
    assert root.call("DELETE", "/pools/red-gpus").status_code == 404
    assert not any(rows.objects.filter(pool="red-gpus").exists() for rows in (PoolTeam, Quota, PoolAdmin))
    assert admin_of_red.get("/pool?pool=red-gpus").status_code == 404
    enrolled = Client().post(
        "/api/v1/agent/enroll",
        data=msgspec.json.encode(EnrollRequest(name="honest", inventory=machine.inventory())),
        content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )
    assert (enrolled.status_code, enrolled.json()["code"]) == (401, "join_token_unknown")
    named = red.post("/runs", {"spec": red.spec(placement={"pool": "red-gpus"})})
    assert named.json()["errors"][0]["code"] == "unknown_pool"
    # The history stays, and so does a pool of the same name that begins again with nothing.
    assert red.get(f"/runs/{run['id']}/attempts").json()["data"][0]["node"]["name"] == "honest"
    assert root.post("/pools", {"name": "red-gpus"}).status_code == 201
    assert root.get("/pool?pool=red-gpus").json()["nodes"] == []


def test_the_commands_revoke_a_node_and_delete_its_pool(alice: Any, node: Any, oolong: Any) -> None:
    User.objects.filter(pk=alice.user.pk).update(is_staff=True)
    pools.create_pool("lab")
    machine = node("old", pool="lab")
    refused = oolong("pool", "delete", "lab")
    assert refused.code != 0 and "it has 1 node (old)" in refused.err
    done = oolong("node", "revoke", machine.node_id)
    assert (done.code, "old is revoked" in done.err) == (0, True), done.err
    assert oolong("node", "revoke", machine.node_id).code != 0
    assert oolong("pool", "delete", "lab").code == 0
    assert not Pool.objects.filter(pk="lab").exists()


# --- what a role in a team may still try


def test_a_team_that_takes_the_id_of_another_as_its_name_gets_nothing_of_its_pools(
    alice: Any, mallory: Any, root: Any, oolong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admins of the installation name teams by id or by name."""
    alice.project.team.name = mallory.project.team_id
    alice.project.team.save()
    pools.create_pool("lab")
    bound = root.post("/pools/lab/teams", {"team": mallory.project.team_id}).json()
    assert bound["team"]["id"] == mallory.project.team_id
    assert [row.team_id for row in PoolTeam.objects.all()] == [mallory.project.team_id]
    pools.bind_team(Pool.objects.get(pk="lab"), alice.project.team)
    monkeypatch.setenv("OOLONG_TOKEN", root.token)
    assert oolong("pool", "quota", mallory.project.team_id, "1", "--pool", "lab").code == 0
    assert Quota.objects.get(pool="lab").team_id == mallory.project.team_id
    assert oolong("pool", "teams", "remove", "lab", mallory.project.team_id).code == 0
    assert [row.team_id for row in PoolTeam.objects.all()] == [alice.project.team_id]


def test_the_reason_to_wait_names_no_run_of_another_team(
    alice: Any, mallory: Any, node: Any, start: Any, tick: Any
) -> None:
    """The first big run of the queue keeps a node; who waits behind it learns that, and not its name."""
    start(node())
    big = alice.run(name="merger-with-acme")
    ready_model(mallory)
    mallory.dataset()
    behind, own = mallory.run(placement={"priority": 100}), alice.run(name="small")
    tick()
    assert alice.see(big["id"])["status"] == "QUEUED"
    why = mallory.see(behind["id"])["pending_reason"]
    assert "merger-with-acme" not in why and "another team's run" in why
    assert "'merger-with-acme'" in alice.see(own["id"])["pending_reason"]
    assert "merger-with-acme" not in mallory.get("/pool").content.decode()


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
    bob.post("/pools/red-gpus/join-tokens")
    bob.post(f"/pool/nodes/{machine.node_id}/revoke")
    User.objects.filter(pk=mallory.user.pk).update(is_staff=True)
    assert mallory.call("DELETE", "/pools/red-gpus").status_code == 204

    def seen(who: Any) -> list[str]:
        found = AuditEntry.objects.filter(project=who.project.pk, data__pool="red-gpus").order_by("pk")
        return list(found.values_list("action", flat=True))

    everywhere = ["pool.join_token", "node.enroll", "node.intent"]
    then = ["pool.join_token", "node.revoke", "pool.delete"]
    assert seen(red) == ["pool.bind_team", "pool.appoint_admin", *everywhere, "pool.quota", *then]
    assert seen(sister) == ["pool.appoint_admin", *everywhere, "pool.quota", *then]
    assert seen(bob) == ["pool.bind_team", *everywhere, "pool.quota", *then], "what they did too"
    assert seen(mallory) == ["pool.delete"], "what they did, and nothing of before"
    drained = AuditEntry.objects.get(project=red.project.pk, action="node.intent")
    assert (drained.actor_name, drained.data["after"]) == ("bob", "DRAINING")
