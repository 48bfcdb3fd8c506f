"""One of everything that a route can name, all Alice's, or of her run's node."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from django.test import Client

from control_plane.accounts import selectors
from control_plane.accounts.identity import services as accounts
from control_plane.accounts.models import ApiToken, Membership, Project, Role, Team, TeamMembership, User
from control_plane.accounts.teams import service_accounts
from control_plane.accounts.tokens.scopes import SCOPES
from control_plane.assets.models import BaseModel, DatasetValidation, ModelCheck, ModelImport
from control_plane.checkpoints.models import Checkpoint
from control_plane.core.infra import clock
from control_plane.fleet import pools
from control_plane.fleet import services as fleet
from control_plane.fleet.models import MaintenanceWindow, Node, Pool, Reservation
from control_plane.fleet.web_liveness import record_alive
from control_plane.runs import telemetry_hooks
from control_plane.runs.models import Attempt, Job
from control_plane.runs.scheduling import schedule_runs
from control_plane.telemetry.models import RunSpan, TrajectorySample
from oolong.contracts.agent import HeartbeatRequest, Inventory, SlotInventory
from oolong.contracts.telemetry import CheckpointLine
from tests.unit.control_plane.access.routes import ROLES
from tests.unit.control_plane.conftest import validate_here

ROWS = b"".join(b'{"q": "%d+1", "a": "%d"}\n' % (n, n + 1) for n in range(32))
# Credentials that are none, or that were good once.
DEAD = (
    "unknown", "unknown node", "garbage", "expired", "revoked", "left the project", "switched off",
)  # fmt: skip
REWARD = "def score(prompt, completion, answer):\n    return 1.0\n"


@dataclass(frozen=True)
class World:
    ids: dict[str, str]  # placeholder -> id
    tokens: dict[str, str]  # caller's name -> bearer token or node credential
    users: dict[str, User]
    hidden: str  # a word that only Alice's team may read


def api(bearer: str, method: str, path: str, body: Any = None, *, status: int | None = None) -> Any:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    if "/parts/" in path:
        headers["x-part-sha256"] = hashlib.sha256(data).hexdigest()
    reply = Client().generic(method, f"/api/v1{path}", data=data, content_type=kind, headers=headers)
    if status is not None:
        assert reply.status_code == status, (method, path, reply.content)
        return reply.json()
    return reply


def build_world() -> World:
    users: dict[str, User] = {}
    tokens: dict[str, str] = {}

    def person(name: str, project: Project, role: str | None) -> str:
        users[name] = user = User.objects.create(username=name)
        if role is not None:
            Membership.objects.create(user=user, project=project, role=role)
        tokens[name] = accounts.create_token(user=user, project=project, name="test", scopes=["*"])[1]
        return tokens[name]

    red, blue = Team.objects.create(name="red"), Team.objects.create(name="blue")
    home = Project.objects.create(team=red, name="default")
    sister = Project.objects.create(team=red, name="other")
    pools.default_pool()
    own, theirs = pools.create_pool("own"), pools.create_pool("theirs")
    pools.bind_team(own, red)
    pools.bind_team(theirs, blue)
    alice = person("alice", home, Role.ADMIN)
    for role in ROLES[:4]:
        person(role, home, role)
    for role in ROLES[4:]:
        person(role, home, None)  # the role in the team is enough
    for name in ("alice", *ROLES[4:]):
        TeamMembership.objects.create(user=users[name], team=red, role=Role.ADMIN)
    User.objects.filter(username__in=("alice", ROLES[5])).update(is_staff=True)
    users.update({user.username: user for user in User.objects.all()})
    person("another team", Project.objects.create(team=blue, name="default"), Role.ADMIN)
    person("another project", sister, Role.ADMIN)
    person("pool admin", home, Role.VIEWER)
    person("pool admin of another pool", home, Role.VIEWER)
    person("admin of another team", Project.objects.create(team=blue, name="more"), Role.ADMIN)
    pools.appoint_admin(own, users["pool admin"])
    pools.appoint_admin(own, users[ROLES[5]])
    for name in ("pool admin of another pool", "another team"):
        pools.appoint_admin(theirs, users[name])
    tokens["pool admin of another pool and team"] = tokens["another team"]
    for role in ROLES[:4]:
        caller = selectors.caller_in(users["alice"], home)
        assert caller is not None
        account = service_accounts.create(caller, name=role, role=role, now=clock.now())
        users[f"{role} service account"] = account
        tokens[f"{role} service account"] = accounts.create_token(
            user=account, project=home, name="test", scopes=["*"]
        )[1]
    for scope in SCOPES:
        tokens[f"only {scope}"] = accounts.create_token(
            user=users["alice"], project=home, name=scope, scopes=[scope]
        )[1]
    _dead_tokens(person, home, tokens, users)

    node = _node(tokens, "node", own)
    _node(tokens, "another node", own, slots=0)
    ids = {
        "node_id": node.pk,
        "pool_name": own.pk,
        "team_id": red.pk,
        "project_id": home.pk,
        **_catalog(alice),
        **_run(alice, tokens["node"], node),
    }
    later = {"starts_at": clock.now() + timedelta(days=30), "ends_at": clock.now() + timedelta(days=31)}
    reservation = Reservation.objects.create(pool=own, team=red, slots=1, created_by="alice", **later)
    window = MaintenanceWindow.objects.create(pool=own, reason="new fans", created_by="alice", **later)
    ids |= {"reservation_id": reservation.pk, "window_id": window.pk}
    ids["import_id"] = ModelImport.objects.create(
        project=home, created_by=users["alice"], name="secret plan", hub="https://hub.test", hub_model="a/b",
        revision="main", state="RUNNING", node_id=node.pk, tar_bytes=len(b"checkpoint 2"), touched_at=clock.now(),
    ).pk  # fmt: skip
    ModelCheck.objects.update(state="RUNNING", node_id=node.pk, touched_at=clock.now())
    ids["check_id"] = ModelCheck.objects.get().pk
    ids["token_id"] = ApiToken.objects.get(user=users["alice"], name="test").pk
    ids["user_id"] = users[ROLES[5]].pk
    ids["invitation_id"] = api(alice, "POST", "/invitations", {"role": "viewer"}, status=201)["id"]
    account = {"name": "ci", "role": "editor"}
    ids["service_account_id"] = api(alice, "POST", "/service-accounts", account, status=201)["id"]
    Membership.objects.create(user=users[ROLES[5]], project=home, role=Role.VIEWER)
    # Asks with all the power that there is in a team.
    TeamMembership.objects.create(user=users["another team"], team=blue, role=Role.ADMIN)
    return World(ids, tokens, users, hidden="secret plan")


def _dead_tokens(person: Any, home: Project, tokens: dict[str, str], users: dict[str, User]) -> None:
    """Credentials that were good once."""
    now = clock.now()
    for name in ("expired", "revoked", "left the project", "switched off"):
        person(name, home, Role.ADMIN)
    ApiToken.objects.filter(user=users["expired"]).update(expires_at=now - timedelta(seconds=1))
    ApiToken.objects.filter(user=users["revoked"]).update(revoked_at=now)
    Membership.objects.filter(user=users["left the project"]).delete()
    User.objects.filter(pk=users["switched off"].pk).update(is_active=False)
    tokens["unknown"], tokens["unknown node"], tokens["garbage"] = "ool_unknown", "oolnode_unknown", "garbage"


def _node(tokens: dict[str, str], name: str, pool: Pool, slots: int = 2) -> Node:
    inventory = Inventory(
        hostname=name, agent_version="0", boot_id="boot", cpu_count=2, memory_bytes=1, disk_free_bytes=1,
        slots=[SlotInventory(slot=f"cpu-{n}", device="cpu") for n in range(slots)], model_roots=["/models"],
    )  # fmt: skip
    enrollment, _ = fleet.create_join_token(pool, now=clock.now())
    node, tokens[name] = fleet.enroll(token=enrollment, name=name, inventory=inventory, now=clock.now())
    report = HeartbeatRequest(inventory=inventory, jobs=[], started_at=0.0)
    api(tokens[name], "POST", "/agent/heartbeat", msgspec.json.encode(report), status=200)
    return node


def _catalog(alice: str) -> dict[str, str]:
    dataset = api(alice, "POST", "/datasets", {"name": "sums"}, status=201)
    upload = api(alice, "POST", "/uploads?purpose=dataset&filename=f", ROWS, status=201)
    body = {"upload_id": upload["id"], "mapping": {"prompt_column": "q", "answer_column": "a"}}
    checked = api(alice, "POST", "/dataset-validations", body, status=202)
    validate_here()
    body = {"validation_id": checked["id"]}
    version = api(alice, "POST", f"/datasets/{dataset['id']}/versions", body, status=201)
    api(alice, "PUT", f"/datasets/{dataset['id']}/aliases/gold", {"version": "1"}, status=200)
    model = api(alice, "POST", "/models", {"name": "tiny", "path": "/models/tiny"}, status=201)
    # As if the check below had ended well.
    config = {
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "hidden_size": 896,
    }
    BaseModel.objects.update(state="READY", number=1, parameters=494_000_000, config=config)
    function = {"name": "one", "kind": "reward", "source": REWARD}
    function = api(alice, "POST", "/functions", function, status=201)
    session = {"filename": "f", "purpose": "dataset", "bytes": 1}
    session = api(alice, "POST", "/upload-sessions", session, status=201)
    validation = api(alice, "POST", "/dataset-validations", {"upload_id": upload["id"]}, status=202)
    secret = {"name": "HUB", "value": "secret plan"}
    api(alice, "POST", "/secrets", secret, status=201)
    DatasetValidation.objects.update(report_sha256=version["sha256"])
    return {
        "dataset_id": dataset["id"], "dataset_alias": "gold", "version_id": version["id"], "sha256": version["sha256"],
        "model_id": model["id"], "function_id": function["function"]["id"], "upload": upload["id"],
        "function_version_id": function["id"], "session_id": session["id"], "validation_id": validation["id"],
        "secret_name": "HUB",
    }  # fmt: skip


def _run(alice: str, credential: str, node: Node) -> dict[str, str]:
    """A run that is placed, with one stored checkpoint and one that its node has begun to upload."""
    spec = {
        "kind": "rl", "name": "secret plan", "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"},
        "placement": {"pool": "own"},
    }  # fmt: skip
    run = api(alice, "POST", "/runs", {"spec": spec}, status=201)
    record_alive()
    schedule_runs(now=clock.now())
    attempt = Attempt.objects.get()
    job = Job.objects.select_related("attempt__run").get(name="trainer")
    stored, begun = (_upload(credential, job, attempt, step=step) for step in (1, 2))
    api(credential, "POST", f"/agent/uploads/{stored}/complete", status=200)
    checkpoint = Checkpoint.objects.get(step=1)
    api(alice, "PUT", "/checkpoint-aliases/prod", {"checkpoint": checkpoint.pk}, status=200)
    gate = {
        "alias": "prod", "assertions": ["eval/accuracy >= 0.8"],
        "spec": {"dataset": {"version": "sums@1", "split": "train"}, "evaluation": {"prompts": 8}},
    }  # fmt: skip
    api(alice, "POST", "/checkpoint-gates", gate, status=201)
    sample = TrajectorySample.objects.create(
        run_id=run["id"], attempt=attempt, at=clock.now(), step=1, group_id="0-0-0", prompt="p", answer="a",
        completion="c", reward=1.0, policy_versions=[], version_texts=[], finish_reason="stop",
    )  # fmt: skip
    RunSpan.objects.create(
        run_id=run["id"], attempt=1, lane="rollout-0", kind="generate", start=1_700_000_000.0,
        end=1_700_000_001.5, version=3, group_id="0-0-0", member=2, outcome="interrupted", sampled_groups=1,
    )  # fmt: skip
    reward_test = {"dataset": "sums@1", "split": "train", "model": "tiny", "reward": {"name": "exact_match"}}
    reward_test = api(alice, "POST", "/reward-tests", reward_test, status=201)
    playground = api(alice, "POST", "/playgrounds", {"models": [{"base_model": "tiny"}]}, status=201)
    hook = {"name": "red hook", "url": "https://192.0.9.1/red", "events": ["run.*"]}
    webhook = api(alice, "POST", "/webhooks", hook, status=201)
    delivery = api(alice, "POST", f"/webhooks/{webhook['id']}/test", status=202)
    view = api(alice, "POST", "/saved-views", {"name": "red view", "query": {"tag": "x"}}, status=201)
    template = api(alice, "POST", "/run-templates", {"name": "red-template", "spec": {"seed": 7}}, status=201)
    plan = {"parameters": [{"pointer": "/seed", "values": [1]}]}
    sweep = api(alice, "POST", "/sweeps", {"name": "red sweep", "spec": spec, "plan": plan}, status=201)
    return {
        "view_id": view["id"], "template_id": template["id"], "sweep_id": sweep["id"],
        "webhook_id": webhook["id"], "delivery_id": delivery["id"],
        "run_id": run["id"], "trajectory_id": str(sample.pk), "attempt_id": attempt.pk, "job_id": job.pk,
        "checkpoint_id": checkpoint.pk,
        "upload_id": begun, "alias": "prod", "reward_test_id": reward_test["id"],
        "playground_id": playground["id"],
    }  # fmt: skip


def _upload(credential: str, job: Job, attempt: Attempt, *, step: int) -> str:
    """The id of an upload whose only part has arrived."""
    data = f"checkpoint {step}".encode()
    manifest = hashlib.sha256(data + b"manifest").hexdigest()
    line = CheckpointLine(
        at=0.0, step=step, directory="/x", bytes=len(data), final=False, manifest_sha256=manifest
    )
    telemetry_hooks.record_checkpoint_line(job, line)
    body = {
        "step": step, "manifest_sha256": manifest, "tar_sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data), "epoch": attempt.epoch,
    }  # fmt: skip
    announced = api(credential, "POST", f"/agent/attempts/{attempt.pk}/checkpoints", body, status=200)
    api(credential, "PUT", f"/agent/uploads/{announced['upload_id']}/parts/0", data, status=200)
    identity: str = announced["upload_id"]
    return identity
