"""How catalog rows look in the API."""

from __future__ import annotations

from typing import Any

from control_plane.assets.models import BaseModel, Dataset, DatasetVersion, Function, FunctionVersion, Upload
from control_plane.core.infra.clock import rfc3339


def upload_as_json(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.pk, "filename": upload.filename, "purpose": upload.purpose, "bytes": upload.bytes,
        "sha256": upload.sha256, "created_at": rfc3339(upload.created_at),
    }  # fmt: skip


def dataset_as_json(dataset: Dataset) -> dict[str, Any]:
    versions = sorted(dataset.versions.all(), key=lambda version: version.number, reverse=True)
    return {
        "id": dataset.pk,
        "name": dataset.name,
        "description": dataset.description,
        "created_by": dataset.created_by.username,
        "created_at": rfc3339(dataset.created_at),
        "versions": [version_as_json(version) for version in versions],
        "latest": version_as_json(versions[0]) if versions else None,
        "aliases": {alias.name: alias.version.number for alias in dataset.aliases.all()},
    }


def version_as_json(version: DatasetVersion) -> dict[str, Any]:
    return {
        "id": version.pk,
        "dataset": {"id": version.dataset_id, "name": version.dataset.name},
        "number": version.number,
        "ref": version.ref,
        "sha256": version.sha256,
        "bytes": version.bytes,
        "rows": version.rows,
        "splits": version.splits,
        "with_completion": version.with_completion,
        "mapping": version.mapping,
        "derived": version.derived,
        "created_at": rfc3339(version.created_at),
    }


def model_as_json(model: BaseModel) -> dict[str, Any]:
    report = model.report or {}
    return {
        "id": model.pk,
        "name": model.name,
        "source": model.source,
        "number": model.number,
        "ref": model.ref,
        "state": str(model.state),
        "message": model.message,
        "errors": report.get("faults", []),
        "same_as": model.same_as_id,
        "origin": model.origin,
        "path": model.path,
        "family": model.family,
        "parameters": model.parameters,
        "sha256": model.sha256,
        "bytes": model.bytes,
        "config": model.config,
        "manifest_sha256": model.manifest_sha256,
        "files": report.get("files", []),
        "tensors": report.get("tensors"),
        "dtypes": report.get("dtypes", {}),
        "tokens": report.get("tokens"),
        "prompt": report.get("prompt", ""),
        "created_at": rfc3339(model.created_at),
    }


def function_as_json(function: Function) -> dict[str, Any]:
    versions = sorted(function.versions.all(), key=lambda version: version.number, reverse=True)
    return {
        "id": function.pk,
        "name": function.name,
        "kind": function.kind,
        "description": function.description,
        "created_by": function.created_by.username,
        "created_at": rfc3339(function.created_at),
        "versions": [function_version_as_json(version) for version in versions],
    }


def function_version_as_json(version: FunctionVersion) -> dict[str, Any]:
    return {
        "id": version.pk,
        "function": {"id": version.function_id, "name": version.function.name},
        "kind": version.function.kind,
        "number": version.number,
        "ref": version.ref,
        "sha256": version.sha256,
        "bytes": version.bytes,
        "options": version.options,
        "any_option": version.any_option,
        "created_by": version.created_by.username,
        "created_at": rfc3339(version.created_at),
    }
