"""Base models."""

from __future__ import annotations

from oolong.client.calls import call
from oolong.client.calls.call import Call
from oolong.client.models import Model, Page


def page() -> Call[Page[Model]]:
    return call.page("models", Model)


def get(model_id: str) -> Call[Model]:
    return call.get("models/{}", Model, model_id)


def register_upload(name: str, upload_id: str) -> Call[Model]:
    return call.post("models", Model, body={"name": name, "upload_id": upload_id})


def register_path(name: str, path: str) -> Call[Model]:
    return call.post("models", Model, body={"name": name, "path": path})
