"""A checkpoint holds the state at which it was begun, whatever train steps run during the write."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from trainers import checkpoint
from trainers.checkpoint import CheckpointWriter, IncompleteCheckpoint, InvalidCheckpoint, TrainerRecord
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors, shard_model
from trainers.models.critic import load_critic
from trainers.models.optimizer import make_adamw
from trainers.models.policy import Policy, load_policy


def record(step: int, rewards: list[float] | None = None) -> TrainerRecord:
    return TrainerRecord(
        kind="rl", step=step, seed=1, random_state=checkpoint.random_state(), run_id="r", attempt_id="a", epoch=1,
        first_rewards=rewards or [],
    )  # fmt: skip


class Written:
    """A policy with an optimizer that has stepped once, and a writer for it."""

    def __init__(self, model: Path, directory: Path, context: DistributedContext) -> None:
        self.context = context
        self.policy = shard_model(load_policy(model), context.mesh)
        self.optimizer = make_adamw(
            self.policy.parameters(), learning_rate=0.1, betas=(0.9, 0.99), offload=True
        )
        self.writer = CheckpointWriter(directory, context=context, model_directory=model, keep_last=2)
        self.move()

    def move(self) -> None:
        for parameter in self.policy.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()

    def begin(self, step: int, *, rewards: list[float] | None = None) -> dict[str, torch.Tensor]:
        tensors = gather_full_tensors(self.policy, dtype=torch.float32, keep=True)
        self.writer.begin(
            record(step, rewards),
            policy=self.policy,
            optimizer=self.optimizer,
            snapshot=b"image",
            weights=tensors,
        )
        return tensors


@pytest.fixture
def written(tiny_model: Path, tmp_path: Path, context: DistributedContext) -> Written:
    return Written(tiny_model, tmp_path / "checkpoints", context)


def loaded(directory: Path, model: Path, context: DistributedContext) -> tuple[Policy, torch.optim.Optimizer]:
    policy = shard_model(load_policy(model), context.mesh)
    optimizer = make_adamw(policy.parameters(), learning_rate=0.1, betas=(0.9, 0.99), offload=True)
    checkpoint.load_state(directory, policy=policy, optimizer=optimizer, context=context)
    return policy, optimizer


def test_train_steps_during_the_write_do_not_change_the_checkpoint(
    written: Written, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = threading.Event()
    table = checkpoint._list_files

    def held_up(directory: Path) -> list[checkpoint.ManifestFile]:
        assert stepped.wait(120)
        return table(directory)

    monkeypatch.setattr(checkpoint, "_list_files", held_up)
    rewards = [0.5]
    before = written.begin(7, rewards=rewards)
    moments = [state["exp_avg"].to_local().clone() for state in written.optimizer.state.values()]
    written.move()
    rewards.append(0.9)
    assert written.writer.poll() is None
    stepped.set()
    committed = written.writer.wait()
    assert committed is not None and written.writer.poll() is None
    told, sha256 = checkpoint.verify(committed.directory)
    assert (told.step, told.first_rewards, sha256) == (7, [0.5], committed.manifest_sha256)
    policy, optimizer = loaded(committed.directory, tiny_model, written.context)
    after = gather_full_tensors(policy, dtype=torch.float32, keep=True)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    for state, moment in zip(optimizer.state.values(), moments, strict=True):
        assert torch.equal(state["exp_avg"].to_local(), moment)


def test_begin_returns_before_files_are_written(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    saved = checkpoint.dcp.async_save

    def late(state: object, **more: object) -> Future[object]:
        real, told = saved(state, **more), Future()

        def tell() -> None:
            if begun.wait(60):
                told.set_result(real.result())
            else:
                told.set_exception(AssertionError("it waits for the files"))

        threading.Thread(target=tell, daemon=True).start()
        return told

    monkeypatch.setattr(checkpoint.dcp, "async_save", late)
    written.begin(8)
    begun.set()
    committed = written.writer.wait()
    assert committed is not None and checkpoint.verify(committed.directory)[0].step == 8


def test_rewriting_a_step_replaces_its_checkpoint(written: Written) -> None:
    written.begin(3)
    first = written.writer.wait()
    written.move()
    written.begin(3)
    second = written.writer.close()
    assert first is not None and second is not None and first.directory == second.directory
    assert checkpoint.verify(second.directory)[1] == second.manifest_sha256 != first.manifest_sha256
    assert [path.name for path in second.directory.parent.iterdir()] == ["step-00000003"]


def test_write_error_is_raised_in_wait(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checkpoint, "write_bytes", lambda path, data: (_ for _ in ()).throw(OSError("disk full"))
    )
    written.begin(4)
    with pytest.raises(OSError, match="disk full"):
        written.writer.wait()


def test_missing_shard_files_are_detected(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = checkpoint.dcp.async_save

    def elsewhere(state: object, *, checkpoint_id: Path, **more: object) -> object:
        future = saved(state, checkpoint_id=checkpoint_id, **more)
        future.result()
        next(checkpoint_id.glob("*.distcp")).unlink()
        return future

    monkeypatch.setattr(checkpoint.dcp, "async_save", elsewhere)
    written.begin(5)
    with pytest.raises(
        IncompleteCheckpoint, match=r"1 of 1 shard files are missing from .*/state \(__0_0\.distcp\)"
    ):
        written.writer.wait()


def test_only_the_newest_checkpoints_remain(written: Written, tmp_path: Path) -> None:
    for step in (3, 4, 5):
        written.begin(step)
        written.writer.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000004",
        "step-00000005",
    ]


def test_run_with_critic_does_not_resume_from_checkpoint_without_critic(
    written: Written, tiny_model: Path
) -> None:
    written.begin(6)
    committed = written.writer.close()
    assert committed is not None
    critic = shard_model(load_critic(tiny_model), written.context.mesh)
    optimizer = make_adamw(critic.parameters(), learning_rate=0.1, betas=(0.9, 0.99))
    with pytest.raises(InvalidCheckpoint, match="has no critic state, but the run has a critic"):
        checkpoint.load_state(
            committed.directory, policy=written.policy, optimizer=written.optimizer,
            critic=(critic, optimizer), context=written.context,
        )  # fmt: skip
