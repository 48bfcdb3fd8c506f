"""Base models, as the client offers them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oolong.client import calls, models
from oolong.client.archives import Progress
from oolong.client.sync.connection import Connection
from oolong.client.sync.uploads import upload


class Models:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.Model]:
        return self._connection.pages(calls.models.page())

    def get(self, model_id: str) -> models.Model:
        return self._connection.send(calls.models.get(model_id))

    def upload(self, path: str | Path, *, name: str, progress: Progress | None = None) -> models.Model:
        """Register a Hugging Face directory (or an archive of one) as a base model."""
        uploaded = upload(self._connection, Path(path), purpose="model", progress=progress)
        return self._connection.send(calls.models.register_upload(name, uploaded.id))

    def register_path(self, path: str, *, name: str) -> models.Model:
        """Register a directory that lies on the nodes themselves."""
        return self._connection.send(calls.models.register_path(name, path))
