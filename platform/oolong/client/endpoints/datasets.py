"""Datasets, the validations that precede them, and their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, drop_none
from oolong.client.models import (
    Dataset,
    DatasetAlias,
    DatasetDifference,
    DatasetRow,
    DatasetStatistics,
    DatasetValidation,
    DatasetVersion,
    Page,
    Upload,
)


def page(*, name: str | None = None) -> RequestSpec[Page[Dataset]]:
    return request_spec.page("datasets", Dataset, name=name)


def create(name: str, description: str) -> RequestSpec[Dataset]:
    return request_spec.post("datasets", Dataset, body={"name": name, "description": description})


def get(dataset_id: str) -> RequestSpec[Dataset]:
    return request_spec.get("datasets/{}", Dataset, dataset_id)


def create_validation(
    upload_id: str, mapping: Mapping[str, Any] | None, stop_after: int | None, config: str = ""
) -> RequestSpec[DatasetValidation]:
    body = {
        "config": config,
        "upload_id": upload_id,
        "mapping": dict(mapping) if mapping is not None else None,
        "stop_after": stop_after,
    }
    return request_spec.post("dataset-validations", DatasetValidation, body=body)


def fetch(url: str, secret: str | None) -> RequestSpec[Upload]:
    """The server fetches it once per request; a retry after a lost response fetches it again."""
    return RequestSpec(
        "POST", "uploads/fetch", Upload, body=drop_none({"url": url, "secret": secret}), idempotent=True
    )


def aliases(dataset_id: str) -> RequestSpec[Page[DatasetAlias]]:
    return request_spec.page("datasets/{}/aliases", DatasetAlias, dataset_id)


def set_alias(dataset_id: str, alias: str, version: str, expected: int | None) -> RequestSpec[DatasetAlias]:
    body = {"version": version, **drop_none({"expected": expected})}
    return request_spec.put("datasets/{}/aliases/{}", DatasetAlias, dataset_id, alias, body=body)


def delete_alias(dataset_id: str, alias: str) -> RequestSpec[None]:
    return request_spec.delete("datasets/{}/aliases/{}", dataset_id, alias)


def measure(version_id: str, model: str) -> RequestSpec[DatasetStatistics]:
    return request_spec.post(
        "dataset-versions/{}/statistics", DatasetStatistics, version_id, body={"model": model}
    )


def statistics(version_id: str, *, over: int | None = None) -> RequestSpec[Page[DatasetStatistics]]:
    return request_spec.page("dataset-versions/{}/statistics", DatasetStatistics, version_id, over=over)


def get_validation(
    validation_id: str, *, wait: int | None = None, seen: str | None = None
) -> RequestSpec[DatasetValidation]:
    """With `wait` the answer comes when the state is another than `seen`, or after so many seconds."""
    return request_spec.get("dataset-validations/{}", DatasetValidation, validation_id, wait=wait, seen=seen)


def validation_report(validation_id: str) -> RequestSpec[bytes]:
    return request_spec.get("dataset-validations/{}/report", bytes, validation_id)


def create_version(dataset_id: str, validation_id: str) -> RequestSpec[DatasetVersion]:
    return request_spec.post(
        "datasets/{}/versions", DatasetVersion, dataset_id, body={"validation_id": validation_id}
    )


def get_version(version_id: str) -> RequestSpec[DatasetVersion]:
    return request_spec.get("dataset-versions/{}", DatasetVersion, version_id)


def resolve(ref: str) -> RequestSpec[DatasetVersion]:
    return request_spec.get("dataset-versions/resolve", DatasetVersion, ref=ref)


def derive(
    version_id: str, ratios: Mapping[str, float], seed: int, stratify: str | None
) -> RequestSpec[DatasetVersion]:
    body = {"ratios": dict(ratios), "seed": seed, "stratify": stratify}
    return request_spec.post("dataset-versions/{}/split", DatasetVersion, version_id, body=body)


def merge(dataset_id: str, versions: Sequence[str]) -> RequestSpec[DatasetVersion]:
    return request_spec.post(
        "datasets/{}/merge", DatasetVersion, dataset_id, body={"versions": list(versions)}
    )


def diff(version_id: str, old: str) -> RequestSpec[DatasetDifference]:
    return request_spec.get("dataset-versions/{}/diff", DatasetDifference, version_id, **{"from": old})


def rows(
    version_id: str, *, text: str | None = None, split: str | None = None
) -> RequestSpec[Page[DatasetRow]]:
    return request_spec.page("dataset-versions/{}/rows", DatasetRow, version_id, q=text, split=split)
