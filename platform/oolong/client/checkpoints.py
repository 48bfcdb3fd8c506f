"""Checkpoints, as both clients offer them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oolong.client import calls, models
from oolong.client.archives import Progress
from oolong.client.downloads import Download
from oolong.client.exports import Export

if TYPE_CHECKING:
    from oolong.client.async_client import AsyncClient
    from oolong.client.sync_client import Client


class Checkpoints:
    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, *, run_id: str | None = None) -> Iterator[models.Checkpoint]:
        return self._client.pages("checkpoints", models.Checkpoint, run=run_id)

    def get(self, checkpoint_id: str) -> models.Checkpoint:
        return self._client.send(calls.get_checkpoint(checkpoint_id))

    def download(self, checkpoint_id: str, target: str | Path, *, progress: Progress | None = None) -> Path:
        """Its tar archive as one file, sha256 verified; a part that is there already is gone on with."""
        checkpoint = self.get(checkpoint_id)
        download = Download(Path(target), sha256=checkpoint.tar_sha256, progress=progress)
        self._client.download(f"checkpoints/{checkpoint_id}/download", download)
        return download.target

    def resolve(self, reference: str) -> models.Checkpoint:
        """By id, alias, run_…@20 or name@latest."""
        return self._client.send(calls.resolve_checkpoint(reference))

    def files(self, checkpoint_id: str) -> models.CheckpointFiles:
        """What lies in it, and where in the download."""
        return self._client.send(calls.checkpoint_files(checkpoint_id))

    def lineage(self, checkpoint_id: str) -> models.Lineage:
        return self._client.send(calls.checkpoint_lineage(checkpoint_id))

    def aliases(self) -> Iterator[models.CheckpointAlias]:
        return self._client.pages("checkpoint-aliases", models.CheckpointAlias)

    def promote(
        self, reference: str, alias: str, *, protected: bool | None = None, expected: str | None = None
    ) -> models.CheckpointAlias:
        """Let an alias mean this checkpoint; with `expected`, only if it means that one now (raises Conflict)."""
        return self._client.send(calls.set_alias(alias, reference, protected, expected))

    def delete_alias(self, alias: str) -> None:
        self._client.send(calls.delete_alias(alias))

    def pin(self, checkpoint_id: str, pinned: bool) -> models.Checkpoint:
        """Whether it is kept whatever the retention policy says."""
        return self._client.send(calls.pin_checkpoint(checkpoint_id, pinned))

    def link(self, checkpoint_id: str, *, seconds: int = 3600) -> models.DownloadLink:
        """An address that downloads it without a token."""
        return self._client.send(calls.checkpoint_link(checkpoint_id, seconds))

    def retention(self) -> models.RetentionPolicy:
        return self._client.send(calls.get_retention())

    def set_retention(self, policy: Mapping[str, Any], *, automatic: bool = False) -> models.RetentionPolicy:
        return self._client.send(calls.set_retention(policy, automatic))

    def plan_retention(self, policy: Mapping[str, Any] | None = None) -> models.RetentionPlan:
        """What would be freed now, by this policy or the project's own."""
        return self._client.send(calls.plan_retention(policy))

    def apply_retention(self) -> models.RetentionPlan:
        """Free what the project's policy frees now."""
        return self._client.send(calls.apply_retention())

    def export(self, reference: str, folder: str | Path, *, progress: Progress | None = None) -> Path:
        """Its model as a Hugging Face directory with a model card; every file's sha256 is verified."""
        checkpoint = self.resolve(reference)
        export = Export(Path(folder), self.files(checkpoint.id), progress)
        for file in export.files:
            self._client.download_part(f"checkpoints/{checkpoint.id}/download", export.part(file))
        return export.finish(self._client.send(calls.model_card(checkpoint.id)))


class AsyncCheckpoints:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def list(self, *, run_id: str | None = None) -> AsyncIterator[models.Checkpoint]:
        return self._client.pages("checkpoints", models.Checkpoint, run=run_id)

    async def get(self, checkpoint_id: str) -> models.Checkpoint:
        return await self._client.send(calls.get_checkpoint(checkpoint_id))

    async def download(
        self, checkpoint_id: str, target: str | Path, *, progress: Progress | None = None
    ) -> Path:
        """Its tar archive as one file, sha256 verified; a part that is there already is gone on with."""
        checkpoint = await self.get(checkpoint_id)
        download = Download(Path(target), sha256=checkpoint.tar_sha256, progress=progress)
        await self._client.download(f"checkpoints/{checkpoint_id}/download", download)
        return download.target

    async def resolve(self, reference: str) -> models.Checkpoint:
        """By id, alias, run_…@20 or name@latest."""
        return await self._client.send(calls.resolve_checkpoint(reference))

    async def files(self, checkpoint_id: str) -> models.CheckpointFiles:
        """What lies in it, and where in the download."""
        return await self._client.send(calls.checkpoint_files(checkpoint_id))

    async def lineage(self, checkpoint_id: str) -> models.Lineage:
        return await self._client.send(calls.checkpoint_lineage(checkpoint_id))

    def aliases(self) -> AsyncIterator[models.CheckpointAlias]:
        return self._client.pages("checkpoint-aliases", models.CheckpointAlias)

    async def promote(
        self, reference: str, alias: str, *, protected: bool | None = None, expected: str | None = None
    ) -> models.CheckpointAlias:
        """Let an alias mean this checkpoint; with `expected`, only if it means that one now (raises Conflict)."""
        return await self._client.send(calls.set_alias(alias, reference, protected, expected))

    async def delete_alias(self, alias: str) -> None:
        await self._client.send(calls.delete_alias(alias))

    async def pin(self, checkpoint_id: str, pinned: bool) -> models.Checkpoint:
        """Whether it is kept whatever the retention policy says."""
        return await self._client.send(calls.pin_checkpoint(checkpoint_id, pinned))

    async def link(self, checkpoint_id: str, *, seconds: int = 3600) -> models.DownloadLink:
        """An address that downloads it without a token."""
        return await self._client.send(calls.checkpoint_link(checkpoint_id, seconds))

    async def retention(self) -> models.RetentionPolicy:
        return await self._client.send(calls.get_retention())

    async def set_retention(
        self, policy: Mapping[str, Any], *, automatic: bool = False
    ) -> models.RetentionPolicy:
        return await self._client.send(calls.set_retention(policy, automatic))

    async def plan_retention(self, policy: Mapping[str, Any] | None = None) -> models.RetentionPlan:
        """What would be freed now, by this policy or the project's own."""
        return await self._client.send(calls.plan_retention(policy))

    async def apply_retention(self) -> models.RetentionPlan:
        """Free what the project's policy frees now."""
        return await self._client.send(calls.apply_retention())

    async def export(self, reference: str, folder: str | Path, *, progress: Progress | None = None) -> Path:
        """Its model as a Hugging Face directory with a model card; every file's sha256 is verified."""
        checkpoint = await self.resolve(reference)
        export = Export(Path(folder), await self.files(checkpoint.id), progress)
        for file in export.files:
            await self._client.download_part(f"checkpoints/{checkpoint.id}/download", export.part(file))
        return export.finish(await self._client.send(calls.model_card(checkpoint.id)))
