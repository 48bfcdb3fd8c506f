"""Checkpoints, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.aio.downloads import download
from oolong.client.archives import Progress
from oolong.client.downloads import Download
from oolong.client.exports import Export, MergedExport
from oolong.client.request_spec import delete, get, page, patch, post, put


class AsyncCheckpoints(AsyncResource):
    def list(
        self, *, run_id: str | None = None, kind: str | None = None, state: str | None = None
    ) -> AsyncIterator[models.Checkpoint]:
        """Newest first; of a run, of a kind (training, weights), in a state (LOCAL, STORED, DELETED)."""
        return self._pages(page("checkpoints", models.Checkpoint, run=run_id, kind=kind, state=state))

    async def get(self, checkpoint_id: str) -> models.Checkpoint:
        return await self._send(get("checkpoints/{}", models.Checkpoint, checkpoint_id))

    async def download(
        self, checkpoint_id: str, target: str | Path, *, progress: Progress | None = None
    ) -> Path:
        """Its tar archive as one file, sha256 verified; a partial download resumes."""
        checkpoint = await self.get(checkpoint_id)
        file = Download(Path(target), sha256=checkpoint.tar_sha256, progress=progress)
        await download(self._connection, get("checkpoints/{}/download", bytes, checkpoint_id), file)
        return file.target

    async def resolve(self, reference: str) -> models.Checkpoint:
        """By id, alias, run_…@20 or name@latest."""
        return await self._send(get("checkpoints/resolve", models.Checkpoint, ref=reference))

    async def files(self, checkpoint_id: str) -> models.CheckpointFiles:
        """What lies in it, and where in the download."""
        return await self._send(get("checkpoints/{}/files", models.CheckpointFiles, checkpoint_id))

    async def lineage(self, checkpoint_id: str) -> models.Lineage:
        return await self._send(get("checkpoints/{}/lineage", models.Lineage, checkpoint_id))

    def aliases(self) -> AsyncIterator[models.CheckpointAlias]:
        return self._pages(page("checkpoint-aliases", models.CheckpointAlias))

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
        body = {"checkpoint": reference, "protected": protected, "expected": expected, "force": force}
        return await self._send(put("checkpoint-aliases/{}", models.CheckpointAlias, alias, body=body))

    async def delete_alias(self, alias: str) -> None:
        await self._send(delete("checkpoint-aliases/{}", alias))

    def gates(self) -> AsyncIterator[models.CheckpointGate]:
        return self._pages(page("checkpoint-gates", models.CheckpointGate))

    async def gate(self, alias: str) -> models.CheckpointGate:
        return await self._send(get("checkpoint-gates/{}", models.CheckpointGate, alias))

    async def set_gate(
        self, alias: str, spec: Mapping[str, Any], assertions: Sequence[str]
    ) -> models.CheckpointGate:
        """The alias moves from now on to what an eval run by `spec` (without its model) has shown to hold."""
        body = {"alias": alias, "spec": dict(spec), "assertions": list(assertions)}
        return await self._send(post("checkpoint-gates", models.CheckpointGate, body=body))

    async def delete_gate(self, alias: str) -> None:
        await self._send(delete("checkpoint-gates/{}", alias))

    async def gate_result(self, alias: str, reference: str) -> models.GateResult:
        """What the alias's gate says of a checkpoint by the newest eval run of it."""
        request = get("checkpoint-gates/{}/result", models.GateResult, alias, checkpoint=reference)
        return await self._send(request)

    async def run_gate(self, alias: str, reference: str) -> models.Run:
        """Submit the gate's eval run of a checkpoint; wait for it, then promote."""
        body = {"checkpoint": reference}
        return await self._send(post("checkpoint-gates/{}/runs", models.Run, alias, body=body))

    async def pin(self, checkpoint_id: str, pinned: bool) -> models.Checkpoint:
        """Whether it is kept whatever the retention policy says."""
        body = {"pinned": pinned}
        return await self._send(patch("checkpoints/{}", models.Checkpoint, checkpoint_id, body=body))

    async def link(self, checkpoint_id: str, *, seconds: int = 3600) -> models.DownloadLink:
        """An address that downloads it without a token."""
        body = {"expires_in_seconds": seconds}
        return await self._send(post("checkpoints/{}/links", models.DownloadLink, checkpoint_id, body=body))

    async def retention(self) -> models.RetentionPolicy:
        return await self._send(get("checkpoint-retention", models.RetentionPolicy))

    async def set_retention(
        self, policy: Mapping[str, Any], *, automatic: bool = False
    ) -> models.RetentionPolicy:
        body = {**policy, "automatic": automatic}
        return await self._send(put("checkpoint-retention", models.RetentionPolicy, body=body))

    async def plan_retention(self, policy: Mapping[str, Any] | None = None) -> models.RetentionPlan:
        """What would be freed now, by this policy or the project's own."""
        body = dict(policy or {})
        return await self._send(post("checkpoint-retention/plan", models.RetentionPlan, body=body))

    async def apply_retention(self) -> models.RetentionPlan:
        """Free what the project's policy frees now."""
        return await self._send(post("checkpoint-retention/apply", models.RetentionPlan))

    async def export(
        self,
        reference: str,
        folder: str | Path,
        *,
        merged: bool = False,
        progress: Progress | None = None,
    ) -> Path:
        """Its model as a Hugging Face directory, or its LoRA adapter as a PEFT directory, with a model card.

        With `merged`, the model of an adapter: its base model with the adapter merged into the weights, in the type
        in which the run computed. Every file's sha256 is verified. Raises Conflict when there is nothing to merge or
        the base model is not in the store, and OolongError when the folder is not empty.
        """
        checkpoint = await self.resolve(reference)
        card = await self._send(get("checkpoints/{}/card", bytes, checkpoint.id))
        if merged:
            model = MergedExport(Path(folder), progress)
            await download(
                self._connection, get("checkpoints/{}/merged", bytes, checkpoint.id), model.download
            )
            return model.finish(card)
        stored = await self.files(checkpoint.id)
        export = Export(Path(folder), stored, progress, content=checkpoint.content)
        for file in export.files:
            await download(
                self._connection, get("checkpoints/{}/download", bytes, checkpoint.id), export.part(file)
            )
        return export.finish(card)
