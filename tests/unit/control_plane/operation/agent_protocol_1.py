"""Protocol 1 of the agents, as the version before this one had it. Frozen: what it reads is what old agents read.

Nothing here may follow a change of `oolong.contracts`; that is its use. The requests that such an agent sent are
recorded beside it, in agent-protocol-1.json. Both go when OLDEST_PROTOCOL leaves 1 behind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("agent-protocol-1.json").read_text())


class EnrolReply(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    credential: str
    heartbeat_seconds: float = 10.0
    lease_ttl_seconds: float = 45.0
    orphan_ttl_seconds: float = 4500.0


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    bytes: int
    kind: str


class DesiredJob(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    name: str
    kind: Literal["controller", "reward", "rollout", "trainer"]
    index: int
    slots: list[str]
    restarts: int
    restart_window_seconds: float = 600.0
    stop: bool = False
    grace_seconds: float = 15.0


class LiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    revision: int = 0
    max_staleness: int | None = None
    max_concurrent_groups: int | None = None
    learning_rate: float | None = None
    checkpoint_wishes: int = 0
    evaluation_wishes: int = 0


class DesiredAttempt(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    attempt_id: str
    attempt_number: int
    epoch: int
    spec: dict[str, object]
    dataset: Artifact
    evaluation: Artifact | None
    model: Artifact | None
    model_path: str
    resume: Artifact | None
    sources: dict[str, Artifact] = {}
    ports: dict[str, int]
    token: str
    jobs: list[DesiredJob]
    live: LiveSettings = LiveSettings()
    tokens_generated_before: int = 0


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    attempts: list[DesiredAttempt]
    acknowledged: list[str]
    heartbeat_seconds: float = 10.0
    revision: int = 0


class ShipReply(msgspec.Struct, frozen=True, kw_only=True):
    offset: int


class UploadReply(msgspec.Struct, frozen=True, kw_only=True):
    upload_id: str
    part_bytes: int
    received_parts: list[int]
    stored: bool = False
