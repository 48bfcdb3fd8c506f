"""Checkpoints, as the client offers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oolong.client import calls, models
from oolong.client.archives import Progress
from oolong.client.downloads import Download
from oolong.client.exports import Export
from oolong.client.sync.connection import Connection
from oolong.client.sync.downloads import download


class Checkpoints:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self, *, run_id: str | None = None, kind: str | None = None, state: str | None = None
    ) -> Iterator[models.Checkpoint]:
        """Newest first; of a run, of a kind (training, weights), in a state (LOCAL, STORED, DELETED)."""
        return self._connection.pages(calls.checkpoints.page(run_id=run_id, kind=kind, state=state))

    def get(self, checkpoint_id: str) -> models.Checkpoint:
        return self._connection.send(calls.checkpoints.get(checkpoint_id))

    def download(self, checkpoint_id: str, target: str | Path, *, progress: Progress | None = None) -> Path:
        """Its tar archive as one file, sha256 verified; a part that is there already is gone on with."""
        checkpoint = self.get(checkpoint_id)
        file = Download(Path(target), sha256=checkpoint.tar_sha256, progress=progress)
        download(self._connection, calls.checkpoints.download(checkpoint_id), file)
        return file.target

    def resolve(self, reference: str) -> models.Checkpoint:
        """By id, alias, run_…@20 or name@latest."""
        return self._connection.send(calls.checkpoints.resolve(reference))

    def files(self, checkpoint_id: str) -> models.CheckpointFiles:
        """What lies in it, and where in the download."""
        return self._connection.send(calls.checkpoints.files(checkpoint_id))

    def lineage(self, checkpoint_id: str) -> models.Lineage:
        return self._connection.send(calls.checkpoints.lineage(checkpoint_id))

    def aliases(self) -> Iterator[models.CheckpointAlias]:
        return self._connection.pages(calls.checkpoints.aliases())

    def promote(
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
        call = calls.checkpoints.set_alias(alias, reference, protected, expected, force)
        return self._connection.send(call)

    def delete_alias(self, alias: str) -> None:
        self._connection.send(calls.checkpoints.delete_alias(alias))

    def gates(self) -> Iterator[models.CheckpointGate]:
        return self._connection.pages(calls.checkpoints.gates())

    def gate(self, alias: str) -> models.CheckpointGate:
        return self._connection.send(calls.checkpoints.gate(alias))

    def set_gate(
        self, alias: str, spec: Mapping[str, Any], assertions: Sequence[str]
    ) -> models.CheckpointGate:
        """The alias moves from now on to what an eval run by `spec` (without its model) has shown to hold."""
        return self._connection.send(calls.checkpoints.set_gate(alias, spec, assertions))

    def delete_gate(self, alias: str) -> None:
        self._connection.send(calls.checkpoints.delete_gate(alias))

    def gate_verdict(self, alias: str, reference: str) -> models.GateVerdict:
        """What the alias's gate says of a checkpoint by the newest eval run of it."""
        return self._connection.send(calls.checkpoints.gate_verdict(alias, reference))

    def run_gate(self, alias: str, reference: str) -> models.Run:
        """Submit the gate's eval run of a checkpoint; wait for it, then promote."""
        return self._connection.send(calls.checkpoints.run_gate(alias, reference))

    def pin(self, checkpoint_id: str, pinned: bool) -> models.Checkpoint:
        """Whether it is kept whatever the retention policy says."""
        return self._connection.send(calls.checkpoints.pin(checkpoint_id, pinned))

    def link(self, checkpoint_id: str, *, seconds: int = 3600) -> models.DownloadLink:
        """An address that downloads it without a token."""
        return self._connection.send(calls.checkpoints.link(checkpoint_id, seconds))

    def retention(self) -> models.RetentionPolicy:
        return self._connection.send(calls.checkpoints.retention())

    def set_retention(self, policy: Mapping[str, Any], *, automatic: bool = False) -> models.RetentionPolicy:
        return self._connection.send(calls.checkpoints.set_retention(policy, automatic))

    def plan_retention(self, policy: Mapping[str, Any] | None = None) -> models.RetentionPlan:
        """What would be freed now, by this policy or the project's own."""
        return self._connection.send(calls.checkpoints.plan_retention(policy))

    def apply_retention(self) -> models.RetentionPlan:
        """Free what the project's policy frees now."""
        return self._connection.send(calls.checkpoints.apply_retention())

    def export(self, reference: str, folder: str | Path, *, progress: Progress | None = None) -> Path:
        """Its model as a Hugging Face directory with a model card; every file's sha256 is verified."""
        checkpoint = self.resolve(reference)
        export = Export(Path(folder), self.files(checkpoint.id), progress)
        for file in export.files:
            download(self._connection, calls.checkpoints.download(checkpoint.id), export.part(file))
        return export.finish(self._connection.send(calls.checkpoints.card(checkpoint.id)))
