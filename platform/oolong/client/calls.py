"""Every call of the API as plain data: both clients, sync and async, send the same ones."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from oolong.client import models

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    path: str  # below /api/v1
    answer: type[T] | None  # None: no content
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None  # JSON
    content: bytes | None = None  # instead of JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str = ""  # Idempotency-Key: makes a POST safe to repeat

    @property
    def repeatable(self) -> bool:
        return self.method != "POST" or bool(self.key)


def get(path: str, answer: type[T], **params: Any) -> Call[T]:
    return Call("GET", path, answer, {name: value for name, value in params.items() if value is not None})


def post(path: str, answer: type[T], body: Any = None) -> Call[T]:
    """Each call has a key of its own, so that repeating it after a lost answer does the work once."""
    return Call("POST", path, answer, body=body if body is not None else {}, key=str(uuid.uuid4()))


def page(
    path: str, item: type[T], *, limit: int | None, cursor: str | None, **params: Any
) -> Call[models.Page[T]]:
    return get(path, models.Page[item], limit=limit, cursor=cursor, **params)  # type: ignore[valid-type]


# --- account


def me() -> Call[models.Me]:
    return get("me", models.Me)


def health() -> Call[models.Health]:
    return get("health", models.Health)


def create_token(name: str, scopes: Sequence[str], expires_at: str | None) -> Call[models.CreatedToken]:
    body = {"name": name, "scopes": list(scopes)} | ({"expires_at": expires_at} if expires_at else {})
    return post("tokens", models.CreatedToken, body)


def revoke_token(token_id: str) -> Call[None]:
    return Call("DELETE", f"tokens/{token_id}", None)


# --- uploads in parts


def begin_session(filename: str, purpose: str, size: int, sha256: str) -> Call[models.UploadSession]:
    body = {"filename": filename, "purpose": purpose, "bytes": size, "sha256": sha256}
    return post("upload-sessions", models.UploadSession, body)


def put_part(session_id: str, number: int, data: bytes) -> Call[models.UploadSession]:
    headers = {"Content-Type": "application/octet-stream", "X-Part-SHA256": hashlib.sha256(data).hexdigest()}
    path = f"upload-sessions/{session_id}/parts/{number}"
    return Call("PUT", path, models.UploadSession, content=data, headers=headers)


def complete_session(session_id: str) -> Call[models.Upload]:
    return post(f"upload-sessions/{session_id}/complete", models.Upload)


# --- datasets and models


def create_dataset(name: str, description: str) -> Call[models.Dataset]:
    return post("datasets", models.Dataset, {"name": name, "description": description})


def get_dataset(dataset_id: str) -> Call[models.Dataset]:
    return get(f"datasets/{dataset_id}", models.Dataset)


def create_validation(
    upload_id: str, mapping: Mapping[str, Any] | None, stop_after: int | None
) -> Call[models.DatasetValidation]:
    body = {
        "upload_id": upload_id,
        "mapping": dict(mapping) if mapping is not None else None,
        "stop_after": stop_after,
    }
    return post("dataset-validations", models.DatasetValidation, body)


def get_validation(validation_id: str) -> Call[models.DatasetValidation]:
    return get(f"dataset-validations/{validation_id}", models.DatasetValidation)


def validation_report(validation_id: str) -> Call[bytes]:
    return get(f"dataset-validations/{validation_id}/report", bytes)


def create_version(dataset_id: str, validation_id: str) -> Call[models.DatasetVersion]:
    return post(f"datasets/{dataset_id}/versions", models.DatasetVersion, {"validation_id": validation_id})


def get_version(version_id: str) -> Call[models.DatasetVersion]:
    return get(f"dataset-versions/{version_id}", models.DatasetVersion)


def derive_version(
    version_id: str, ratios: Mapping[str, float], seed: int, stratify: str | None
) -> Call[models.DatasetVersion]:
    body = {"ratios": dict(ratios), "seed": seed, "stratify": stratify}
    return post(f"dataset-versions/{version_id}/derive", models.DatasetVersion, body)


def diff_versions(version_id: str, old: str) -> Call[models.DatasetDifference]:
    return get(f"dataset-versions/{version_id}/diff", models.DatasetDifference, **{"from": old})


def resolve_version(ref: str) -> Call[models.DatasetVersion]:
    return get("dataset-versions/resolve", models.DatasetVersion, ref=ref)


def preview_dataset(
    upload_id: str, mapping: Mapping[str, Any] | None, limit: int
) -> Call[models.DatasetPreview]:
    body = {"upload_id": upload_id, "limit": limit} | (
        {"mapping": dict(mapping)} if mapping is not None else {}
    )
    return post("datasets/preview", models.DatasetPreview, body)


def register_model(name: str, *, upload_id: str | None, path: str | None) -> Call[models.Model]:
    return post(
        "models", models.Model, {"name": name} | ({"upload_id": upload_id} if upload_id else {"path": path})
    )


def get_model(model_id: str) -> Call[models.Model]:
    return get(f"models/{model_id}", models.Model)


# --- functions


def upload_function(name: str, kind: str, source: str, description: str) -> Call[models.FunctionVersion]:
    body = {"name": name, "kind": str(kind), "source": source, "description": description}
    return post("functions", models.FunctionVersion, body)


def get_function(function_id: str) -> Call[models.Function]:
    return get(f"functions/{function_id}", models.Function)


def resolve_function(ref: str) -> Call[models.FunctionVersion]:
    return get("function-versions/resolve", models.FunctionVersion, ref=ref)


def function_source(version_id: str) -> Call[bytes]:
    return get(f"function-versions/{version_id}/source", bytes)


# --- the project


def get_project() -> Call[models.Project]:
    return get("project", models.Project)


def change_project(**settings: Any) -> Call[models.Project]:
    return Call("PATCH", "project", models.Project, body=settings)


# --- runs


def validate_run(spec: Mapping[str, Any]) -> Call[models.Validation]:
    return post("runs/validate", models.Validation, {"spec": dict(spec)})


def create_run(spec: Mapping[str, Any]) -> Call[models.Run]:
    return post("runs", models.Run, {"spec": dict(spec)})


def get_run(run_id: str) -> Call[models.Run]:
    return get(f"runs/{run_id}", models.Run)


def open_session(run_id: str) -> Call[models.Session]:
    """Without a key: repeated after a lost answer it would open a second one, and the first would be left alone."""
    return Call("POST", f"runs/{run_id}/sessions", models.Session, body={})


def get_session(run_id: str, session_id: str) -> Call[models.SessionState]:
    return get(f"runs/{run_id}/sessions/{session_id}", models.SessionState)


def set_session_reward(run_id: str, session_id: str, reward: float) -> Call[models.SessionState]:
    path = f"runs/{run_id}/sessions/{session_id}/reward"
    return Call("PUT", path, models.SessionState, body={"reward": reward})


def end_session(
    run_id: str, session_id: str, *, reward: float | None = None, discard: bool = False
) -> Call[models.SessionState]:
    body: dict[str, Any] = {"discard": True} if discard else {} if reward is None else {"reward": reward}
    return Call("POST", f"runs/{run_id}/sessions/{session_id}/end", models.SessionState, body=body)


def stop_run(run_id: str) -> Call[models.Run]:
    return post(f"runs/{run_id}/stop", models.Run)


def cancel_run(run_id: str) -> Call[models.Run]:
    return post(f"runs/{run_id}/cancel", models.Run)


def pause_run(run_id: str) -> Call[models.Run]:
    return post(f"runs/{run_id}/pause", models.Run)


def resume_run(run_id: str) -> Call[models.Run]:
    return post(f"runs/{run_id}/resume", models.Run)


def retry_run(run_id: str) -> Call[models.Run]:
    return post(f"runs/{run_id}/retry", models.Run)


def clone_run(run_id: str, changes: Mapping[str, Any], checkpoint: str | None) -> Call[models.Run]:
    body = {"changes": dict(changes)} | ({"checkpoint": checkpoint} if checkpoint else {})
    return post(f"runs/{run_id}/clone", models.Run, body)


def change_run(
    run_id: str, changes: Mapping[str, Any], *, checkpoint: bool, evaluate: bool
) -> Call[models.Run]:
    body = {"changes": dict(changes), "checkpoint": checkpoint, "evaluate": evaluate}
    return post(f"runs/{run_id}/changes", models.Run, body)


def update_run(run_id: str, fields: Mapping[str, Any]) -> Call[models.Run]:
    return Call("PATCH", f"runs/{run_id}", models.Run, body=dict(fields))


def metrics(
    run_id: str, names: Sequence[str], axis: str | None, after_x: int | None, limit: int | None
) -> Call[models.Metrics]:
    return get(
        f"runs/{run_id}/metrics",
        models.Metrics,
        names=",".join(names),
        axis=axis,
        after_x=after_x,
        limit=limit,
    )


def metric_names(run_id: str) -> Call[models.Page[models.MetricName]]:
    return get(f"runs/{run_id}/metric-names", models.Page[models.MetricName])


def document(run_id: str, name: str) -> Call[models.Document]:
    return get(f"runs/{run_id}/documents/{name}", models.Document)


def log_part(run_id: str, job: str, incarnation: int, offset: int, limit: int) -> Call[models.LogPart]:
    return get(
        f"runs/{run_id}/logs", models.LogPart, job=job, incarnation=incarnation, offset=offset, limit=limit
    )


# --- checkpoints, pool


def get_checkpoint(checkpoint_id: str) -> Call[models.Checkpoint]:
    return get(f"checkpoints/{checkpoint_id}", models.Checkpoint)


def resolve_checkpoint(ref: str) -> Call[models.Checkpoint]:
    return get("checkpoints/resolve", models.Checkpoint, ref=ref)


def checkpoint_files(checkpoint_id: str) -> Call[models.CheckpointFiles]:
    return get(f"checkpoints/{checkpoint_id}/files", models.CheckpointFiles)


def checkpoint_lineage(checkpoint_id: str) -> Call[models.Lineage]:
    return get(f"checkpoints/{checkpoint_id}/lineage", models.Lineage)


def model_card(checkpoint_id: str) -> Call[bytes]:
    return get(f"checkpoints/{checkpoint_id}/card", bytes)


def set_alias(
    name: str, checkpoint: str, protected: bool | None, expected: str | None
) -> Call[models.CheckpointAlias]:
    body = {"checkpoint": checkpoint, "protected": protected, "expected": expected}
    return Call("PUT", f"checkpoint-aliases/{name}", models.CheckpointAlias, body=body)


def delete_alias(name: str) -> Call[None]:
    return Call("DELETE", f"checkpoint-aliases/{name}", None)


def pin_checkpoint(checkpoint_id: str, pinned: bool) -> Call[models.Checkpoint]:
    return Call("PATCH", f"checkpoints/{checkpoint_id}", models.Checkpoint, body={"pinned": pinned})


def checkpoint_link(checkpoint_id: str, seconds: int) -> Call[models.DownloadLink]:
    return post(f"checkpoints/{checkpoint_id}/links", models.DownloadLink, {"expires_in_seconds": seconds})


def get_retention() -> Call[models.RetentionPolicy]:
    return get("checkpoint-retention", models.RetentionPolicy)


def set_retention(policy: Mapping[str, Any], automatic: bool) -> Call[models.RetentionPolicy]:
    body = {**policy, "automatic": automatic}
    return Call("PUT", "checkpoint-retention", models.RetentionPolicy, body=body)


def plan_retention(policy: Mapping[str, Any] | None) -> Call[models.RetentionPlan]:
    return post("checkpoint-retention/plan", models.RetentionPlan, dict(policy or {}))


def apply_retention() -> Call[models.RetentionPlan]:
    return post("checkpoint-retention/apply", models.RetentionPlan)


def get_pool() -> Call[models.Pool]:
    return get("pool", models.Pool)


def create_enrolment_token() -> Call[models.EnrolmentToken]:
    return post("pool/enrolment-tokens", models.EnrolmentToken)


def move_node(node_id: str, verb: str) -> Call[models.Node]:
    return post(f"pool/nodes/{node_id}/{verb}", models.Node)


def presets() -> Call[Any]:
    return Call("GET", "presets", None)
