"""Base models."""

from __future__ import annotations

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Model, ModelImport, Page


def page(*, name: str | None = None) -> Call[Page[Model]]:
    return call.page("models", Model, name=name)


def get(model_id: str, *, wait: int | None = None, seen: str | None = None) -> Call[Model]:
    """With `wait` the answer comes when the state is another than `seen`, or after so many seconds."""
    return call.get("models/{}", Model, model_id, wait=wait, seen=seen)


def resolve(reference: str) -> Call[Model]:
    return call.get("models/resolve", Model, ref=reference)


def remove(model_id: str) -> Call[None]:
    return call.delete("models/{}", model_id)


def register_upload(name: str, upload_id: str) -> Call[Model]:
    return call.post("models", Model, body={"name": name, "upload_id": upload_id})


def register_path(name: str, path: str) -> Call[Model]:
    return call.post("models", Model, body={"name": name, "path": path})


def import_from_hub(name: str, model: str, revision: str, secret: str) -> Call[ModelImport]:
    body = {"name": name, "model": model, "revision": revision, "secret": secret}
    return call.post("model-imports", ModelImport, body=body)


def imports() -> Call[Page[ModelImport]]:
    return call.page("model-imports", ModelImport)


def get_import(import_id: str) -> Call[ModelImport]:
    return call.get("model-imports/{}", ModelImport, import_id)


def cancel_import(import_id: str) -> Call[ModelImport]:
    return Call("DELETE", call.filled("model-imports/{}", (import_id,)), ModelImport)
