"""Asynchronous checkpoints. A checkpoint directory is either complete or absent.

    step-00000020/
      state/               parameters and optimizer state of policy and critic, sharded (torch.distributed.checkpoint)
      controller.msgpack   the controller's snapshot at the same step boundary; rl only
      hf/                  Hugging Face export that transformers and SGLang load; of a LoRA run instead:
      adapter/             PEFT adapter, and base.json with the weights that it is for
      trainer.json         step, seed, random state, writing attempt, parent checkpoint
      MANIFEST.json        written last: every file with its size and sha256

A checkpoint is written under a temporary name while train steps continue, fsynced, then renamed. The sha256 of
MANIFEST.json identifies it.
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
from torch.distributed.tensor import DTensor

from oolong.contracts.lora_adapter import (
    ADAPTER_CONFIG_FILE,
    ADAPTER_WEIGHTS_FILE,
    BASE_FILE,
    AdapterBase,
)
from oolong.contracts.telemetry import CheckpointLine
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_adapters, reshard
from trainers.durable_files import (
    atomic_swap,
    file_sha256,
    fsync_directory,
    link_or_copy,
    write_bytes,
    write_json,
)
from trainers.models.critic import Critic
from trainers.models.hf_export import WEIGHTS_FILE, auxiliary_files, write_weights
from trainers.models.lora import PeftAdapter, peft_adapter
from trainers.models.optimizer import OffloadedAdamW
from trainers.models.policy import Policy

MANIFEST = "MANIFEST.json"
TRAINER_FILE = "trainer.json"
CONTROLLER_FILE = "controller.msgpack"
STATE, EXPORT, ADAPTER = "state", "hf", "adapter"

CriticAndOptimizer = tuple[Critic, torch.optim.Optimizer]


class InvalidCheckpoint(Exception):
    """The directory to resume from is not a committed, intact checkpoint of this kind of run."""


class IncompleteCheckpoint(Exception):
    """Not all ranks wrote to the same directory."""


class TrainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of trainer.json."""

    format: int = 1
    kind: str  # rl | sft | dpo
    step: int  # rl: policy version; else optimizer steps
    seed: int
    random_state: str  # base64 of torch's CPU generator
    skipped_steps: int = 0
    run_id: str
    attempt_id: str
    epoch: int
    parent: str | None = None  # manifest sha256 of the checkpoint that this attempt resumed from
    first_rewards: list[float] = []  # mean reward of each of the run's first ten steps
    last_rewards: list[float] = []  # and of its newest ten
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
class CommittedCheckpoint:
    directory: Path
    step: int
    manifest_sha256: str
    bytes: int

    def outbox_line(self, *, final: bool) -> CheckpointLine:
        """What tells the agent to upload it."""
        return CheckpointLine(
            step=self.step,
            directory=str(self.directory),
            manifest_sha256=self.manifest_sha256,
            bytes=self.bytes,
            final=final,
        )


class CheckpointWriter:
    """Writes one checkpoint at a time in the background. Every rank has a writer.

    `begin` copies the sharded state to host memory, the only part that blocks the train loop. Background threads write
    it, and rank 0 commits: manifest, fsync, rename. `poll` and `wait` return each committed checkpoint once.

    Nodes share no directory, so ranks on several nodes gather the whole state in the host memory of rank 0, which
    writes it alone: 12 bytes per trained parameter.
    """

    def __init__(
        self,
        checkpoints: Path,
        *,
        context: DistributedContext,
        model_directory: Path,
        adapter_base: AdapterBase | None = None,
        keep_last: int,
    ) -> None:
        self._checkpoints = checkpoints
        self._context = context
        self._model_directory = model_directory
        self._adapter_base = adapter_base
        self._keep_last = keep_last
        self._pending: Future[CommittedCheckpoint | None] | None = None
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="commit")

    def begin(
        self,
        record: TrainerRecord,
        *,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        critic: CriticAndOptimizer | None = None,
        snapshot: bytes | None,
        weights: dict[str, torch.Tensor] | Path | None,
    ) -> None:
        """Stage one checkpoint. Collective. Requires that the previous one has been waited for.

        `weights` are rank 0's full tensors, or the safetensors file that already holds them, which may be deleted as
        soon as this returns. None where the writer has an `adapter_base`: the policy's adapters are stored instead.
        """
        assert self._pending is None, "wait() for the pending checkpoint first"
        temporary = self._checkpoints / f".tmp-{_directory_name(record.step)}"
        if self._context.is_rank0:
            self._checkpoints.mkdir(parents=True, exist_ok=True)
            for leftover in self._checkpoints.glob(".tmp-*"):
                shutil.rmtree(leftover)
            (temporary / (EXPORT if self._adapter_base is None else ADAPTER)).mkdir(parents=True)
            if isinstance(weights, Path):
                link_or_copy(weights, temporary / EXPORT / WEIGHTS_FILE)
        self._context.barrier()
        saved = self._save(training_state(policy, optimizer, critic), temporary / STATE)
        adapters = (
            gather_adapters(policy, dtype=torch.float32, keep=self._context.is_rank0)
            if self._adapter_base is not None
            else {}
        )
        if self._context.is_rank0:
            assert saved is not None
            tensors = None if isinstance(weights, Path) else weights
            self._pending = self._committer.submit(
                self._commit,
                temporary,
                saved,
                copy.deepcopy(record),
                snapshot=snapshot,
                tensors=tensors,
                adapter=peft_adapter(policy, adapters) if self._adapter_base is not None else None,
            )
        elif saved is not None:
            self._pending = self._committer.submit(lambda: saved.result() and None)

    def _save(self, state: dict[str, Any], directory: Path) -> Future[Metadata] | None:
        """Begin to write the state. None on a rank whose state another one writes."""
        if not self._context.spans_nodes:
            return dcp.async_save(
                state,
                checkpoint_id=directory,
                process_group=self._context.background_group,
                no_dist=self._context.world_size == 1,
            )
        whole = gather_state(state, keep=self._context.is_rank0)
        if not self._context.is_rank0:
            return None
        return self._committer.submit(dcp.save, whole, checkpoint_id=directory, no_dist=True)

    def poll(self) -> CommittedCheckpoint | None:
        """Return the pending checkpoint if rank 0 has committed it. Raises the error of a failed write."""
        return self.wait() if self._pending is not None and self._pending.done() else None

    def wait(self) -> CommittedCheckpoint | None:
        """Wait for the pending checkpoint. Returns it on rank 0, None elsewhere. Raises the error of a failed write."""
        pending, self._pending = self._pending, None
        return pending.result() if pending is not None else None

    def close(self) -> CommittedCheckpoint | None:
        """Wait for the pending checkpoint and stop the background thread."""
        last = self.wait()
        self._committer.shutdown()
        return last

    def _commit(
        self,
        temporary: Path,
        saved: Future[Metadata],
        record: TrainerRecord,
        *,
        snapshot: bytes | None,
        tensors: dict[str, torch.Tensor] | None,
        adapter: PeftAdapter | None,
    ) -> CommittedCheckpoint:
        _check_shards(temporary / STATE, saved.result())
        if snapshot is not None:
            write_bytes(temporary / CONTROLLER_FILE, snapshot)
        write_json(temporary / TRAINER_FILE, record)
        if tensors is not None:
            write_weights(tensors, temporary / EXPORT / WEIGHTS_FILE)
        if adapter is not None:
            config, adapter_tensors = adapter
            write_json(temporary / ADAPTER / ADAPTER_CONFIG_FILE, config)
            write_json(temporary / ADAPTER / BASE_FILE, self._adapter_base)
            write_weights(adapter_tensors, temporary / ADAPTER / ADAPTER_WEIGHTS_FILE)
        else:
            for path in auxiliary_files(self._model_directory):
                shutil.copyfile(path, temporary / EXPORT / path.name)
        manifest = Manifest(step=record.step, files=_list_files(temporary))
        data = write_json(temporary / MANIFEST, manifest)
        exported = EXPORT if adapter is None else ADAPTER
        for directory in (temporary / STATE, temporary / exported, temporary):
            fsync_directory(directory)
        target = self._checkpoints / _directory_name(record.step)
        if target.exists():
            atomic_swap(temporary, target)  # one of the two always has the name
            shutil.rmtree(temporary)
        else:
            temporary.rename(target)
        fsync_directory(self._checkpoints)
        _delete_old(self._checkpoints, self._keep_last)
        return CommittedCheckpoint(
            directory=target,
            step=record.step,
            manifest_sha256=hashlib.sha256(data).hexdigest(),
            bytes=sum(file.bytes for file in manifest.files) + len(data),
        )


def _directory_name(step: int) -> str:
    return f"step-{step:08d}"


def _check_shards(state: Path, metadata: Metadata) -> None:
    """Check that every rank wrote its shard to this directory."""
    expected = {info.relative_path for info in metadata.storage_data.values()}
    missing = sorted(name for name in expected if not (state / name).exists())
    if missing:
        raise IncompleteCheckpoint(
            f"{len(missing)} of {len(expected)} shard files are missing from {state} ({', '.join(missing[:3])})"
        )


def verify(directory: Path) -> tuple[TrainerRecord, str]:
    """Check every file against the manifest. Returns the trainer's record and the manifest's sha256.

    Raises InvalidCheckpoint, which names the file and the difference.
    """
    try:
        data = (directory / MANIFEST).read_bytes()
        manifest = msgspec.json.decode(data, type=Manifest)
        for file in manifest.files:
            path = directory / file.name
            if path.stat().st_size != file.bytes:
                raise InvalidCheckpoint(
                    f"{path} has {path.stat().st_size} bytes, its manifest lists {file.bytes}"
                )
            if file_sha256(path) != file.sha256:
                raise InvalidCheckpoint(f"{path} does not have the sha256 that its manifest lists")
        record = msgspec.json.decode((directory / TRAINER_FILE).read_bytes(), type=TrainerRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidCheckpoint(f"{directory} is not a committed checkpoint: {error}") from error
    if record.step != manifest.step:
        raise InvalidCheckpoint(
            f"{directory}: trainer.json is of step {record.step}, the manifest of {manifest.step}"
        )
    return record, hashlib.sha256(data).hexdigest()


def load_state(
    directory: Path,
    *,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    critic: CriticAndOptimizer | None = None,
    context: DistributedContext,
) -> None:
    """Load parameters and optimizer state in place, resharding to the present number of ranks. Collective."""
    stored = dcp.FileSystemReader(directory / STATE).read_metadata().state_dict_metadata
    _check_parameters(directory, set(stored), policy)
    if critic is not None and not any(name.startswith("critic.") for name in stored):
        raise InvalidCheckpoint(
            f"{directory} has no critic state, but the run has a critic: the checkpoint belongs to another run"
        )
    if any(name.startswith("optimizer.") for name in stored):  # there is none before the first optimizer step
        for one in (optimizer, *(critic[1:] if critic is not None else ())):
            _allocate_moments(one, context)
    dcp.load(
        training_state(policy, optimizer, critic),
        checkpoint_id=directory / STATE,
        no_dist=context.world_size == 1,
    )


def _check_parameters(directory: Path, stored: set[str], policy: Policy) -> None:
    """Check that the checkpoint holds the parameters that the run trains: all weights, or the adapters."""
    wanted = {f"parameters.{name}" for name in _model_parameters(policy)}
    found = {name for name in stored if name.startswith("parameters.")}
    if wanted != found:
        raise InvalidCheckpoint(
            f"{directory} holds other trained weights than model.lora of the RunSpec describes: "
            f"{len(wanted - found)} are missing ({', '.join(sorted(wanted - found)[:2])}), {len(found - wanted)} are "
            f"unknown ({', '.join(sorted(found - wanted)[:2])}). Start a new run with model.checkpoint instead, which "
            "merges the adapter"
        )


def _model_parameters(model: Policy | Critic) -> dict[str, torch.nn.Parameter]:
    """Trained parameters by name. The frozen base of adapters is the run's initial model, which is not saved."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _allocate_moments(optimizer: torch.optim.Optimizer, context: DistributedContext) -> None:
    """Allocate the moments of an optimizer that has not stepped yet, so that they can be loaded in place."""
    device = torch.device("cpu") if isinstance(optimizer, OffloadedAdamW) else context.device
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=context.device),
                "exp_avg": torch.zeros_like(parameter, device=device),
                "exp_avg_sq": torch.zeros_like(parameter, device=device),
            }


def training_state(
    policy: Policy, optimizer: torch.optim.Optimizer, critic: CriticAndOptimizer | None = None
) -> dict[str, Any]:
    """Parameters and optimizer state by name; those of a critic under "critic"."""
    state = _model_state(policy, optimizer)
    if critic is not None:
        state["critic"] = _model_state(*critic)
    return state


def _model_state(model: Policy | Critic, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer part is empty before the first optimizer step."""
    reshard(model)
    parameters = _model_parameters(model)
    names = {parameter: name for name, parameter in parameters.items()}
    return {
        "parameters": {name: parameter.detach() for name, parameter in parameters.items()},
        "optimizer": {
            names[parameter]: dict(values) for parameter, values in optimizer.state.items() if values
        },
    }


def gather_state(state: dict[str, Any], *, keep: bool) -> dict[str, Any]:
    """The same state with whole tensors in host memory. Collective; ranks with keep=False return an empty dict."""
    gathered: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found: Any = gather_state(value, keep=keep)
        elif isinstance(value, DTensor):
            found = value.full_tensor().to("cpu", copy=True)
        else:
            found = value.to("cpu", copy=True) if isinstance(value, torch.Tensor) else value
        if keep:
            gathered[name] = found
    return gathered


def random_state() -> str:
    return base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()


def restore_random_state(text: str) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8))


def _list_files(directory: Path) -> list[ManifestFile]:
    """Every file with its size and sha256, each fsynced, so that the manifest describes bytes on disk."""
    files = []
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files.append(ManifestFile(path.relative_to(directory).as_posix(), path.stat().st_size, sha256))
    return files


def _delete_old(checkpoints: Path, keep_last: int) -> None:
    """Rename before deleting: a kill in between leaves no partial checkpoint under a committed name."""
    committed = sorted(path for path in checkpoints.glob("step-*") if (path / MANIFEST).exists())
    for path in committed[:-keep_last]:
        doomed = path.with_name(f".tmp-deleted-{path.name}")
        path.rename(doomed)
        shutil.rmtree(doomed)
