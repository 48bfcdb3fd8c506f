"""Checkpoints, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.aio.downloads import download
from oolong.client.archives import Progress
from oolong.client.downloads import Download
from oolong.client.exports import Export


class AsyncCheckpoints:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(
        self, *, run_id: str | None = None, kind: str | None = None, state: str | None = None
    ) -> AsyncIterator[models.Checkpoint]:
        """Newest first; of a run, of a kind (training, weights), in a state (LOCAL, STORED, DELETED)."""
        return self._connection.pages(endpoints.checkpoints.page(run_id=run_id, kind=kind, state=state))

    async def get(self, checkpoint_id: str) -> models.Checkpoint:
        return await self._connection.send(endpoints.checkpoints.get(checkpoint_id))

    async def download(
        self, checkpoint_id: str, target: str | Path, *, progress: Progress | None = None
    ) -> Path:
        """Its tar archive as one file, sha256 verified; a part that is there already is gone on with."""
        checkpoint = await self.get(checkpoint_id)
        file = Download(Path(target), sha256=checkpoint.tar_sha256, progress=progress)
        await download(self._connection, endpoints.checkpoints.download(checkpoint_id), file)
        return file.target

    async def resolve(self, reference: str) -> models.Checkpoint:
        """By id, alias, run_…@20 or name@latest."""
        return await self._connection.send(endpoints.checkpoints.resolve(reference))

    async def files(self, checkpoint_id: str) -> models.CheckpointFiles:
        """What lies in it, and where in the download."""
        return await self._connection.send(endpoints.checkpoints.files(checkpoint_id))

    async def lineage(self, checkpoint_id: str) -> models.Lineage:
        return await self._connection.send(endpoints.checkpoints.lineage(checkpoint_id))

    def aliases(self) -> AsyncIterator[models.CheckpointAlias]:
        return self._connection.pages(endpoints.checkpoints.aliases())

    async def promote(
        self,
        reference: str,
        alias: str,
        *,
        protected: bool | None = None,
        expected: str | None = None,
        force: bool = False,
    ) -> models.CheckpointAlias:
        """Let an alias mean this checkpoint; with `expected`, only if it means that one now (raises Conflict).

        `force` overrides the alias's gate: it needs checkpoints:admin and leaves an entry in the audit log.
        """
        request = endpoints.checkpoints.set_alias(alias, reference, protected, expected, force)
        return await self._connection.send(request)

    async def delete_alias(self, alias: str) -> None:
        await self._connection.send(endpoints.checkpoints.delete_alias(alias))

    def gates(self) -> AsyncIterator[models.CheckpointGate]:
        return self._connection.pages(endpoints.checkpoints.gates())

    async def gate(self, alias: str) -> models.CheckpointGate:
        return await self._connection.send(endpoints.checkpoints.gate(alias))

    async def set_gate(
        self, alias: str, spec: Mapping[str, Any], assertions: Sequence[str]
    ) -> models.CheckpointGate:
        """The alias moves from now on to what an eval run by `spec` (without its model) has shown to hold."""
        return await self._connection.send(endpoints.checkpoints.set_gate(alias, spec, assertions))

    async def delete_gate(self, alias: str) -> None:
        await self._connection.send(endpoints.checkpoints.delete_gate(alias))

    async def gate_verdict(self, alias: str, reference: str) -> models.GateVerdict:
        """What the alias's gate says of a checkpoint by the newest eval run of it."""
        return await self._connection.send(endpoints.checkpoints.gate_verdict(alias, reference))

    async def run_gate(self, alias: str, reference: str) -> models.Run:
        """Submit the gate's eval run of a checkpoint; wait for it, then promote."""
        return await self._connection.send(endpoints.checkpoints.run_gate(alias, reference))

    async def pin(self, checkpoint_id: str, pinned: bool) -> models.Checkpoint:
        """Whether it is kept whatever the retention policy says."""
        return await self._connection.send(endpoints.checkpoints.pin(checkpoint_id, pinned))

    async def link(self, checkpoint_id: str, *, seconds: int = 3600) -> models.DownloadLink:
        """An address that downloads it without a token."""
        return await self._connection.send(endpoints.checkpoints.link(checkpoint_id, seconds))

    async def retention(self) -> models.RetentionPolicy:
        return await self._connection.send(endpoints.checkpoints.retention())

    async def set_retention(
        self, policy: Mapping[str, Any], *, automatic: bool = False
    ) -> models.RetentionPolicy:
        return await self._connection.send(endpoints.checkpoints.set_retention(policy, automatic))

    async def plan_retention(self, policy: Mapping[str, Any] | None = None) -> models.RetentionPlan:
        """What would be freed now, by this policy or the project's own."""
        return await self._connection.send(endpoints.checkpoints.plan_retention(policy))

    async def apply_retention(self) -> models.RetentionPlan:
        """Free what the project's policy frees now."""
        return await self._connection.send(endpoints.checkpoints.apply_retention())

    async def export(
        self,
        reference: str,
        folder: str | Path,
        *,
        adapter: bool = False,
        progress: Progress | None = None,
    ) -> Path:
        """Its model as a Hugging Face directory with a model card; every file's sha256 is verified.

        With `adapter`, its LoRA adapter as a PEFT directory. Raises OolongError when the checkpoint has none.
        """
        checkpoint = await self.resolve(reference)
        export = Export(Path(folder), await self.files(checkpoint.id), progress, adapter=adapter)
        for file in export.files:
            await download(self._connection, endpoints.checkpoints.download(checkpoint.id), export.part(file))
        return export.finish(await self._connection.send(endpoints.checkpoints.card(checkpoint.id)))
