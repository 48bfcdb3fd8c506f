"""Checkpoints: a directory that is complete, or is not there (SEMANTICS section 6).

    step-00000020/
      state/               parameters and optimizer, of policy and critic, sharded (torch.distributed.checkpoint)
      controller.msgpack   the controller's snapshot at the same step boundary; rl only
      hf/                  Hugging Face export that transformers and SGLang load
      trainer.json         step, seed, random state, place in the schedule, who wrote it, from what it went on
      MANIFEST.json        written last: every file with its size and sha256

It is written under a temporary name, fsynced, and renamed. The sha256 of MANIFEST.json is its identity.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed.checkpoint as dcp

from trainers.models.critic import Critic
from trainers.models.export import (
    WEIGHTS_FILE,
    companion_files,
    file_sha256,
    fsync_directory,
    link_or_copy,
    write_json,
    write_weights,
)
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


def commit(
    checkpoints: Path,
    record: TrainerRecord,
    *,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    critic: TrainedCritic | None = None,
    ranks: Ranks,
    snapshot: bytes | None,
    model_directory: Path,
    weights: dict[str, torch.Tensor] | Path | None,
    keep_last: int,
) -> Committed | None:
    """Write and commit one checkpoint, then let go of all but the newest `keep_last`. Collective.

    `weights` are rank 0's full tensors, or the safetensors file that already holds them. Returns what was
    committed on rank 0, None elsewhere.
    """
    target = checkpoints / f"step-{record.step:08d}"
    temporary = checkpoints / f".tmp-{target.name}"
    if ranks.first:
        checkpoints.mkdir(parents=True, exist_ok=True)
        for left_over in checkpoints.glob(".tmp-*"):
            shutil.rmtree(left_over)
        temporary.mkdir()
    ranks.wait_for_all()
    dcp.save(
        training_state(policy, optimizer, critic), checkpoint_id=temporary / STATE, no_dist=ranks.size == 1
    )
    ranks.wait_for_all()
    if not ranks.first:
        ranks.wait_for_all()
        return None
    if snapshot is not None:
        _write(temporary / CONTROLLER_FILE, snapshot)
    write_json(temporary / TRAINER_FILE, record)
    assert weights is not None
    _export(temporary / EXPORT, model_directory, weights)
    manifest = Manifest(step=record.step, files=_table(temporary))
    data = write_json(temporary / MANIFEST, manifest)
    for directory in (temporary / STATE, temporary / EXPORT, temporary):
        fsync_directory(directory)
    if target.exists():
        shutil.rmtree(target)
    temporary.rename(target)
    fsync_directory(checkpoints)
    _forget_old(checkpoints, keep_last)
    ranks.wait_for_all()
    return Committed(
        directory=target,
        step=record.step,
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        bytes=sum(file.bytes for file in manifest.files) + len(data),
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
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=ranks.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
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


def _export(directory: Path, model_directory: Path, weights: dict[str, torch.Tensor] | Path) -> None:
    directory.mkdir()
    if isinstance(weights, Path):
        link_or_copy(weights, directory / WEIGHTS_FILE)
    else:
        write_weights(weights, directory / WEIGHTS_FILE)
    for path in companion_files(model_directory):
        shutil.copyfile(path, directory / path.name)


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
