"""Base models."""

from __future__ import annotations

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Model, ModelImport, Page


def page(*, name: str | None = None) -> RequestSpec[Page[Model]]:
    return request_spec.page("models", Model, name=name)


def get(model_id: str, *, wait: int | None = None, seen: str | None = None) -> RequestSpec[Model]:
    """With `wait` the answer comes when the state is another than `seen`, or after so many seconds."""
    return request_spec.get("models/{}", Model, model_id, wait=wait, seen=seen)


def resolve(reference: str) -> RequestSpec[Model]:
    return request_spec.get("models/resolve", Model, ref=reference)


def remove(model_id: str) -> RequestSpec[None]:
    return request_spec.delete("models/{}", model_id)


def register_upload(name: str, upload_id: str) -> RequestSpec[Model]:
    return request_spec.post("models", Model, body={"name": name, "upload_id": upload_id})


def register_path(name: str, path: str) -> RequestSpec[Model]:
    return request_spec.post("models", Model, body={"name": name, "path": path})


def import_from_hub(name: str, model: str, revision: str, secret: str) -> RequestSpec[ModelImport]:
    body = {"name": name, "model": model, "revision": revision, "secret": secret}
    return request_spec.post("model-imports", ModelImport, body=body)


def imports() -> RequestSpec[Page[ModelImport]]:
    return request_spec.page("model-imports", ModelImport)


def get_import(import_id: str) -> RequestSpec[ModelImport]:
    return request_spec.get("model-imports/{}", ModelImport, import_id)


def cancel_import(import_id: str) -> RequestSpec[ModelImport]:
    return RequestSpec("DELETE", request_spec.format_path("model-imports/{}", (import_id,)), ModelImport)
