"""Checkpoints: a directory that is complete, or is not there (SEMANTICS section 6).

    step-00000020/
      state/               parameters and optimizer, of policy and critic, sharded (torch.distributed.checkpoint)
      controller.msgpack   the controller's snapshot at the same step boundary; rl only
      hf/                  Hugging Face export that transformers and SGLang load
      trainer.json         step, seed, random state, place in the schedule, who wrote it, from what it went on
      MANIFEST.json        written last: every file with its size and sha256

It is written under a temporary name, behind the train steps, fsynced, and renamed. The sha256 of MANIFEST.json is its
identity.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata

from trainers.models.critic import Critic
from trainers.models.export import (
    WEIGHTS_FILE,
    companion_files,
    exchange,
    file_sha256,
    fsync_directory,
    link_or_copy,
    write_json,
    write_weights,
)
from trainers.models.optimizer import OffloadedAdamW
from trainers.models.policy import Policy
from trainers.models.shard import reshard
from trainers.ranks import Ranks

MANIFEST = "MANIFEST.json"
TRAINER_FILE = "trainer.json"
CONTROLLER_FILE = "controller.msgpack"
STATE, EXPORT = "state", "hf"


TrainedCritic = tuple[Critic, torch.optim.Optimizer]


class NoValidCheckpoint(Exception):
    """A resume was asked for, and what it names is not a committed, intact checkpoint."""


class CheckpointIncomplete(Exception):
    """The ranks did not write to one directory."""


class TrainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """trainer.json"""

    format: int = 1
    kind: str  # rl | sft
    step: int  # rl: policy version; sft: optimizer steps
    seed: int
    random_state: str  # base64 of torch's CPU generator
    nonfinite_skips: int = 0
    run_id: str
    attempt_id: str
    epoch: int
    parent: str | None = None  # manifest sha256 of the checkpoint that this attempt went on from
    first_rewards: list[float] = []  # mean rewards of the run's first steps, ten at most
    last_rewards: list[float] = []  # and of its newest
    tokens_trained: int = 0


class ManifestFile(msgspec.Struct, frozen=True):
    name: str  # relative, with forward slashes
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    step: int
    files: list[ManifestFile]


@dataclass(frozen=True)
class Committed:
    directory: Path
    step: int
    manifest_sha256: str
    bytes: int


class CheckpointWriter:
    """Writes checkpoints behind the train steps, one at a time. Every rank has one.

    `begin` copies the sharded state to the host, which is all that a train step waits for. Threads then write it, and
    rank 0 commits: manifest, fsync, rename. What is committed is told by `committed` and `finish`, once.
    """

    def __init__(self, checkpoints: Path, *, ranks: Ranks, model_directory: Path, keep_last: int) -> None:
        self._checkpoints = checkpoints
        self._ranks = ranks
        self._model_directory = model_directory
        self._keep_last = keep_last
        self._underway: Future[Committed | None] | None = None
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="commit")

    def begin(
        self,
        record: TrainerRecord,
        *,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        critic: TrainedCritic | None = None,
        snapshot: bytes | None,
        weights: dict[str, torch.Tensor] | Path | None,
    ) -> None:
        """Stage one checkpoint. Collective; the one before must have been waited for.

        `weights` are rank 0's full tensors, or the safetensors file that already holds them: it may be deleted as soon
        as this returns.
        """
        assert self._underway is None, "finish() the checkpoint under way first"
        temporary = self._checkpoints / f".tmp-{_name(record.step)}"
        if self._ranks.first:
            self._checkpoints.mkdir(parents=True, exist_ok=True)
            for left_over in self._checkpoints.glob(".tmp-*"):
                shutil.rmtree(left_over)
            (temporary / EXPORT).mkdir(parents=True)
            if isinstance(weights, Path):
                link_or_copy(weights, temporary / EXPORT / WEIGHTS_FILE)
        self._ranks.wait_for_all()
        written = dcp.async_save(
            training_state(policy, optimizer, critic),
            checkpoint_id=temporary / STATE,
            process_group=self._ranks.background,
            no_dist=self._ranks.size == 1,
        )
        if self._ranks.first:
            tensors = None if isinstance(weights, Path) else weights
            self._underway = self._committer.submit(
                self._commit, temporary, written, copy.deepcopy(record), snapshot=snapshot, tensors=tensors
            )
        else:
            self._underway = self._committer.submit(lambda: written.result() and None)

    def committed(self) -> Committed | None:
        """The checkpoint under way, if rank 0 has committed it by now. An error of its writing is raised here."""
        return self.finish() if self._underway is not None and self._underway.done() else None

    def finish(self) -> Committed | None:
        """Wait for the checkpoint under way. Rank 0 is told what was committed, once; the others None."""
        underway, self._underway = self._underway, None
        return underway.result() if underway is not None else None

    def close(self) -> Committed | None:
        last = self.finish()
        self._committer.shutdown()
        return last

    def _commit(
        self,
        temporary: Path,
        written: Future[Metadata],
        record: TrainerRecord,
        *,
        snapshot: bytes | None,
        tensors: dict[str, torch.Tensor] | None,
    ) -> Committed:
        _refuse_missing_shards(temporary / STATE, written.result())
        if snapshot is not None:
            _write(temporary / CONTROLLER_FILE, snapshot)
        write_json(temporary / TRAINER_FILE, record)
        if tensors is not None:
            write_weights(tensors, temporary / EXPORT / WEIGHTS_FILE)
        for path in companion_files(self._model_directory):
            shutil.copyfile(path, temporary / EXPORT / path.name)
        manifest = Manifest(step=record.step, files=_table(temporary))
        data = write_json(temporary / MANIFEST, manifest)
        for directory in (temporary / STATE, temporary / EXPORT, temporary):
            fsync_directory(directory)
        target = self._checkpoints / _name(record.step)
        if target.exists():
            exchange(temporary, target)  # never a moment without one of the two
            shutil.rmtree(temporary)
        else:
            temporary.rename(target)
        fsync_directory(self._checkpoints)
        _forget_old(self._checkpoints, self._keep_last)
        return Committed(
            directory=target,
            step=record.step,
            manifest_sha256=hashlib.sha256(data).hexdigest(),
            bytes=sum(file.bytes for file in manifest.files) + len(data),
        )


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _refuse_missing_shards(state: Path, metadata: Metadata) -> None:
    """Ranks on other nodes write to this directory too: without a shared filesystem their parts are not here."""
    wanted = {info.relative_path for info in metadata.storage_data.values()}
    missing = sorted(name for name in wanted if not (state / name).exists())
    if missing:
        raise CheckpointIncomplete(
            f"{len(missing)} of {len(wanted)} parts are not in {state} ({', '.join(missing[:3])}): a trainer on "
            "several nodes needs its attempt directory on a filesystem that all of them share"
        )


def verify(directory: Path) -> tuple[TrainerRecord, str]:
    """Check every file against the manifest. Returns the trainer's record and the manifest's sha256."""
    try:
        data = (directory / MANIFEST).read_bytes()
        manifest = msgspec.json.decode(data, type=Manifest)
        for file in manifest.files:
            path = directory / file.name
            if path.stat().st_size != file.bytes:
                raise NoValidCheckpoint(
                    f"{path} has {path.stat().st_size} bytes, its manifest says {file.bytes}"
                )
            if file_sha256(path) != file.sha256:
                raise NoValidCheckpoint(f"{path} does not have the sha256 of its manifest")
        record = msgspec.json.decode((directory / TRAINER_FILE).read_bytes(), type=TrainerRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise NoValidCheckpoint(f"{directory} is not a committed checkpoint: {error}") from error
    if record.step != manifest.step:
        raise NoValidCheckpoint(
            f"{directory}: trainer.json is of step {record.step}, the manifest of {manifest.step}"
        )
    return record, hashlib.sha256(data).hexdigest()


def load_state(
    directory: Path,
    *,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    critic: TrainedCritic | None = None,
    ranks: Ranks,
) -> None:
    """Fill parameters and optimizer in place, from any number of ranks to any other. Collective."""
    stored = dcp.FileSystemReader(directory / STATE).read_metadata().state_dict_metadata
    if critic is not None and not any(name.startswith("critic.") for name in stored):
        raise NoValidCheckpoint(
            f"{directory} holds no critic, and the run has one: it is another run's checkpoint"
        )
    if any(name.startswith("optimizer.") for name in stored):  # absent before the first optimizer step
        for one in (optimizer, *(critic[1:] if critic is not None else ())):
            _make_room(one, ranks)
    dcp.load(
        training_state(policy, optimizer, critic), checkpoint_id=directory / STATE, no_dist=ranks.size == 1
    )


def _make_room(optimizer: torch.optim.Optimizer, ranks: Ranks) -> None:
    """Moments of an optimizer that has not stepped yet."""
    home = torch.device("cpu") if isinstance(optimizer, OffloadedAdamW) else ranks.device
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=ranks.device),
                "exp_avg": torch.zeros_like(parameter, device=home),
                "exp_avg_sq": torch.zeros_like(parameter, device=home),
            }


def training_state(
    policy: Policy, optimizer: torch.optim.Optimizer, critic: TrainedCritic | None = None
) -> dict[str, Any]:
    """Parameters and moments by name, those of a critic under "critic"."""
    state = _state_of(policy, optimizer)
    if critic is not None:
        state["critic"] = _state_of(*critic)
    return state


def _state_of(model: Policy | Critic, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Before the first optimizer step there are no moments."""
    reshard(model)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        "parameters": {name: parameter.detach() for parameter, name in names.items()},
        "optimizer": {
            names[parameter]: dict(values) for parameter, values in optimizer.state.items() if values
        },
    }


def random_state() -> str:
    return base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()


def restore_random_state(text: str) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8))


def _table(directory: Path) -> list[ManifestFile]:
    """Every file with its size and sha256, each fsynced: the manifest speaks of bytes that are on the disk."""
    table = []
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        table.append(ManifestFile(path.relative_to(directory).as_posix(), path.stat().st_size, sha256))
    return table


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _forget_old(checkpoints: Path, keep_last: int) -> None:
    """Renamed before it is deleted, so that a kill in between leaves no half checkpoint under a committed name."""
    committed = sorted(path for path in checkpoints.glob("step-*") if (path / MANIFEST).exists())
    for path in committed[:-keep_last]:
        gone = path.with_name(f".tmp-gone-{path.name}")
        path.rename(gone)
        shutil.rmtree(gone)
