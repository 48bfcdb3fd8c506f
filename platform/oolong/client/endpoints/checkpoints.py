"""Checkpoints, their aliases and how long they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
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
) -> RequestSpec[Page[Checkpoint]]:
    return request_spec.page("checkpoints", Checkpoint, run=run_id, kind=kind, state=state)


def get(checkpoint_id: str) -> RequestSpec[Checkpoint]:
    return request_spec.get("checkpoints/{}", Checkpoint, checkpoint_id)


def resolve(ref: str) -> RequestSpec[Checkpoint]:
    return request_spec.get("checkpoints/resolve", Checkpoint, ref=ref)


def files(checkpoint_id: str) -> RequestSpec[CheckpointFiles]:
    return request_spec.get("checkpoints/{}/files", CheckpointFiles, checkpoint_id)


def lineage(checkpoint_id: str) -> RequestSpec[Lineage]:
    return request_spec.get("checkpoints/{}/lineage", Lineage, checkpoint_id)


def card(checkpoint_id: str) -> RequestSpec[bytes]:
    return request_spec.get("checkpoints/{}/card", bytes, checkpoint_id)


def download(checkpoint_id: str) -> RequestSpec[bytes]:
    """A tar archive; large, so `client.checkpoints.download` streams it into a file."""
    return request_spec.get("checkpoints/{}/download", bytes, checkpoint_id)


def aliases() -> RequestSpec[Page[CheckpointAlias]]:
    return request_spec.page("checkpoint-aliases", CheckpointAlias)


def set_alias(
    name: str, checkpoint: str, protected: bool | None, expected: str | None, force: bool
) -> RequestSpec[CheckpointAlias]:
    body = {"checkpoint": checkpoint, "protected": protected, "expected": expected, "force": force}
    return request_spec.put("checkpoint-aliases/{}", CheckpointAlias, name, body=body)


def delete_alias(name: str) -> RequestSpec[None]:
    return request_spec.delete("checkpoint-aliases/{}", name)


def gates() -> RequestSpec[Page[CheckpointGate]]:
    return request_spec.page("checkpoint-gates", CheckpointGate)


def gate(alias: str) -> RequestSpec[CheckpointGate]:
    return request_spec.get("checkpoint-gates/{}", CheckpointGate, alias)


def set_gate(alias: str, spec: Mapping[str, Any], assertions: Sequence[str]) -> RequestSpec[CheckpointGate]:
    body = {"alias": alias, "spec": dict(spec), "assertions": list(assertions)}
    return request_spec.post("checkpoint-gates", CheckpointGate, body=body)


def delete_gate(alias: str) -> RequestSpec[None]:
    return request_spec.delete("checkpoint-gates/{}", alias)


def gate_verdict(alias: str, checkpoint: str) -> RequestSpec[GateVerdict]:
    return request_spec.get("checkpoint-gates/{}/result", GateVerdict, alias, checkpoint=checkpoint)


def run_gate(alias: str, checkpoint: str) -> RequestSpec[Run]:
    return request_spec.post("checkpoint-gates/{}/runs", Run, alias, body={"checkpoint": checkpoint})


def pin(checkpoint_id: str, pinned: bool) -> RequestSpec[Checkpoint]:
    return request_spec.patch("checkpoints/{}", Checkpoint, checkpoint_id, body={"pinned": pinned})


def link(checkpoint_id: str, seconds: int) -> RequestSpec[DownloadLink]:
    return request_spec.post(
        "checkpoints/{}/links", DownloadLink, checkpoint_id, body={"expires_in_seconds": seconds}
    )


def retention() -> RequestSpec[RetentionPolicy]:
    return request_spec.get("checkpoint-retention", RetentionPolicy)


def set_retention(policy: Mapping[str, Any], automatic: bool) -> RequestSpec[RetentionPolicy]:
    return request_spec.put("checkpoint-retention", RetentionPolicy, body={**policy, "automatic": automatic})


def plan_retention(policy: Mapping[str, Any] | None) -> RequestSpec[RetentionPlan]:
    return request_spec.post("checkpoint-retention/plan", RetentionPlan, body=dict(policy or {}))


def apply_retention() -> RequestSpec[RetentionPlan]:
    return request_spec.post("checkpoint-retention/apply", RetentionPlan)
