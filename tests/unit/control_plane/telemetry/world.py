"""A project with a run on a node: the rows that telemetry hangs on to."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import msgspec

from control_plane.accounts.identity import services as accounts
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Membership, Project, Role, Team, User
from control_plane.accounts.tokens.scopes import ROLE_SCOPES
from control_plane.accounts.tokens.token_hashing import NODE_PREFIX, digest
from control_plane.assets.models import BaseModel, Dataset, DatasetVersion
from control_plane.core.infra import clock
from control_plane.fleet.models import Node, Pool
from control_plane.runs.models import Attempt, Job, Run
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.telemetry import AnyLine, Points

SPEC = RunSpec.model_validate(
    {"name": "run", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"}}
).model_dump(mode="json")


@dataclass(frozen=True)
class World:
    project: Project
    user: User
    node: Node
    credential: str  # of the node
    run: Run
    attempt: Attempt
    trainer: Job
    rollout: Job

    @property
    def caller(self) -> Caller:
        return Caller(self.user, self.project, Role.ADMIN, ROLE_SCOPES[Role.ADMIN])

    def token(self, *scopes: str) -> str:
        return accounts.create_token(
            user=self.user, project=self.project, name="test", scopes=list(scopes) or ["*"]
        )[1]


def build_world(name: str = "one", **run: Any) -> World:
    """Each with a user, project, node and run of its own; two worlds share nothing."""
    now = clock.now()
    user = User.objects.create(username=f"user {name}")
    team = Team.objects.create(name=f"team {name}")
    project = Project.objects.create(team=team, name="default")
    Membership.objects.create(user=user, project=project, role=Role.ADMIN)
    dataset = Dataset.objects.create(project=project, created_by=user, name="sums")
    version = DatasetVersion.objects.create(
        dataset=dataset, number=1, sha256="0" * 64, bytes=1, rows=1, splits={"train": 1}, mapping={}, offsets=[],
        created_by=user,
    )  # fmt: skip
    model = BaseModel.objects.create(
        project=project, created_by=user, name="tiny", source="path", path="/tiny"
    )
    pool, _ = Pool.objects.get_or_create(name="default")
    credential = NODE_PREFIX + secrets.token_urlsafe(16)
    node = Node.objects.create(
        pool=pool, name=f"node {name}", credential_sha256=digest(credential), last_seen_at=now
    )
    fields = {"status": RunStatus.RUNNING, "attempt_number": 1, "total_train_steps": 100, **run}
    run_row = Run.objects.create(
        project=project, created_by=user, name=f"run {name}", kind="rl", spec=SPEC, dataset_version=version,
        base_model=model, status_at=now, priority=500, slots_needed=2, created_at=now, **fields,
    )  # fmt: skip
    attempt = Attempt.objects.create(
        run=run_row, number=1, epoch=1, node=node, token="t", ports={}, created_at=now
    )
    trainer = Job.objects.create(attempt=attempt, name="trainer", kind="trainer")
    rollout = Job.objects.create(attempt=attempt, name="rollout-0", kind="rollout")
    return World(project, user, node, credential, run_row, attempt, trainer, rollout)


def encode(*lines: AnyLine) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def step(x: int, *, at: float = 1_700_000_000.0, **values: float) -> Points:
    """Points of the step axis; `reward_mean=…` stands for reward/mean."""
    named = {name.replace("_", "/", 1): value for name, value in values.items()}
    return Points(at=at + x, axis="step", x=x, values=named or {"reward/mean": x / 10})
