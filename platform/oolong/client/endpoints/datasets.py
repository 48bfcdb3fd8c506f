"""Datasets, the validations that precede them, and their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, given
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


def page(*, name: str | None = None) -> Call[Page[Dataset]]:
    return call.page("datasets", Dataset, name=name)


def create(name: str, description: str) -> Call[Dataset]:
    return call.post("datasets", Dataset, body={"name": name, "description": description})


def get(dataset_id: str) -> Call[Dataset]:
    return call.get("datasets/{}", Dataset, dataset_id)


def create_validation(
    upload_id: str, mapping: Mapping[str, Any] | None, stop_after: int | None, config: str = ""
) -> Call[DatasetValidation]:
    body = {
        "config": config,
        "upload_id": upload_id,
        "mapping": dict(mapping) if mapping is not None else None,
        "stop_after": stop_after,
    }
    return call.post("dataset-validations", DatasetValidation, body=body)


def fetch(url: str, secret: str | None) -> Call[Upload]:
    """The server fetches it once for each call; repeating the call after a lost answer fetches it again."""
    return Call("POST", "uploads/fetch", Upload, body=given({"url": url, "secret": secret}), harmless=True)


def aliases(dataset_id: str) -> Call[Page[DatasetAlias]]:
    return call.page("datasets/{}/aliases", DatasetAlias, dataset_id)


def set_alias(dataset_id: str, alias: str, version: str, expected: int | None) -> Call[DatasetAlias]:
    body = {"version": version, **given({"expected": expected})}
    return call.put("datasets/{}/aliases/{}", DatasetAlias, dataset_id, alias, body=body)


def delete_alias(dataset_id: str, alias: str) -> Call[None]:
    return call.delete("datasets/{}/aliases/{}", dataset_id, alias)


def measure(version_id: str, model: str) -> Call[DatasetStatistics]:
    return call.post("dataset-versions/{}/statistics", DatasetStatistics, version_id, body={"model": model})


def statistics(version_id: str, *, over: int | None = None) -> Call[Page[DatasetStatistics]]:
    return call.page("dataset-versions/{}/statistics", DatasetStatistics, version_id, over=over)


def get_validation(
    validation_id: str, *, wait: int | None = None, seen: str | None = None
) -> Call[DatasetValidation]:
    """With `wait` the answer comes when the state is another than `seen`, or after so many seconds."""
    return call.get("dataset-validations/{}", DatasetValidation, validation_id, wait=wait, seen=seen)


def validation_report(validation_id: str) -> Call[bytes]:
    return call.get("dataset-validations/{}/report", bytes, validation_id)


def create_version(dataset_id: str, validation_id: str) -> Call[DatasetVersion]:
    return call.post(
        "datasets/{}/versions", DatasetVersion, dataset_id, body={"validation_id": validation_id}
    )


def get_version(version_id: str) -> Call[DatasetVersion]:
    return call.get("dataset-versions/{}", DatasetVersion, version_id)


def resolve(ref: str) -> Call[DatasetVersion]:
    return call.get("dataset-versions/resolve", DatasetVersion, ref=ref)


def derive(
    version_id: str, ratios: Mapping[str, float], seed: int, stratify: str | None
) -> Call[DatasetVersion]:
    body = {"ratios": dict(ratios), "seed": seed, "stratify": stratify}
    return call.post("dataset-versions/{}/split", DatasetVersion, version_id, body=body)


def merge(dataset_id: str, versions: Sequence[str]) -> Call[DatasetVersion]:
    return call.post("datasets/{}/merge", DatasetVersion, dataset_id, body={"versions": list(versions)})


def diff(version_id: str, old: str) -> Call[DatasetDifference]:
    return call.get("dataset-versions/{}/diff", DatasetDifference, version_id, **{"from": old})


def rows(version_id: str, *, text: str | None = None, split: str | None = None) -> Call[Page[DatasetRow]]:
    return call.page("dataset-versions/{}/rows", DatasetRow, version_id, q=text, split=split)
