"""Checkpoints, their aliases and how long they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import (
    Checkpoint,
    CheckpointAlias,
    CheckpointFiles,
    CheckpointGate,
    DownloadLink,
    GateVerdict,
    Lineage,
    Page,
    RetentionPlan,
    RetentionPolicy,
    Run,
)


def page(
    *, run_id: str | None = None, kind: str | None = None, state: str | None = None
) -> Call[Page[Checkpoint]]:
    return call.page("checkpoints", Checkpoint, run=run_id, kind=kind, state=state)


def get(checkpoint_id: str) -> Call[Checkpoint]:
    return call.get("checkpoints/{}", Checkpoint, checkpoint_id)


def resolve(ref: str) -> Call[Checkpoint]:
    return call.get("checkpoints/resolve", Checkpoint, ref=ref)


def files(checkpoint_id: str) -> Call[CheckpointFiles]:
    return call.get("checkpoints/{}/files", CheckpointFiles, checkpoint_id)


def lineage(checkpoint_id: str) -> Call[Lineage]:
    return call.get("checkpoints/{}/lineage", Lineage, checkpoint_id)


def card(checkpoint_id: str) -> Call[bytes]:
    return call.get("checkpoints/{}/card", bytes, checkpoint_id)


def download(checkpoint_id: str) -> Call[bytes]:
    """A tar archive; large, so `client.checkpoints.download` streams it into a file."""
    return call.get("checkpoints/{}/download", bytes, checkpoint_id)


def aliases() -> Call[Page[CheckpointAlias]]:
    return call.page("checkpoint-aliases", CheckpointAlias)


def set_alias(
    name: str, checkpoint: str, protected: bool | None, expected: str | None, force: bool
) -> Call[CheckpointAlias]:
    body = {"checkpoint": checkpoint, "protected": protected, "expected": expected, "force": force}
    return call.put("checkpoint-aliases/{}", CheckpointAlias, name, body=body)


def delete_alias(name: str) -> Call[None]:
    return call.delete("checkpoint-aliases/{}", name)


def gates() -> Call[Page[CheckpointGate]]:
    return call.page("checkpoint-gates", CheckpointGate)


def gate(alias: str) -> Call[CheckpointGate]:
    return call.get("checkpoint-gates/{}", CheckpointGate, alias)


def set_gate(alias: str, spec: Mapping[str, Any], assertions: Sequence[str]) -> Call[CheckpointGate]:
    body = {"alias": alias, "spec": dict(spec), "assertions": list(assertions)}
    return call.post("checkpoint-gates", CheckpointGate, body=body)


def delete_gate(alias: str) -> Call[None]:
    return call.delete("checkpoint-gates/{}", alias)


def gate_verdict(alias: str, checkpoint: str) -> Call[GateVerdict]:
    return call.get("checkpoint-gates/{}/result", GateVerdict, alias, checkpoint=checkpoint)


def run_gate(alias: str, checkpoint: str) -> Call[Run]:
    return call.post("checkpoint-gates/{}/runs", Run, alias, body={"checkpoint": checkpoint})


def pin(checkpoint_id: str, pinned: bool) -> Call[Checkpoint]:
    return call.patch("checkpoints/{}", Checkpoint, checkpoint_id, body={"pinned": pinned})


def link(checkpoint_id: str, seconds: int) -> Call[DownloadLink]:
    return call.post(
        "checkpoints/{}/links", DownloadLink, checkpoint_id, body={"expires_in_seconds": seconds}
    )


def retention() -> Call[RetentionPolicy]:
    return call.get("checkpoint-retention", RetentionPolicy)


def set_retention(policy: Mapping[str, Any], automatic: bool) -> Call[RetentionPolicy]:
    return call.put("checkpoint-retention", RetentionPolicy, body={**policy, "automatic": automatic})


def plan_retention(policy: Mapping[str, Any] | None) -> Call[RetentionPlan]:
    return call.post("checkpoint-retention/plan", RetentionPlan, body=dict(policy or {}))


def apply_retention() -> Call[RetentionPlan]:
    return call.post("checkpoint-retention/apply", RetentionPlan)
