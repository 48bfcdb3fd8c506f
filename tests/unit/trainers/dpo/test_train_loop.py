"""DPO on a tiny model, against a plain computation with transformers, and resumed from a checkpoint."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from oolong.contracts.attempt import AttemptFile
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import Outbox
from tests.support.outboxes import written_lines
from tests.support.preference_rows import preference_rows
from tests.support.tiny_specs import tiny_spec
from trainers import checkpoint
from trainers.distributed.fsdp import load_sharded_policy
from trainers.dpo.pairs import Pair, tokenize_pairs
from trainers.dpo.train_loop import DpoTrainer, Result
from trainers.examples import batch_at

DPO = {
    "steps": 4, "batch_size": 4, "learning_rate": 3e-3, "warmup_steps": 2, "beta": 0.5,
    "validation_split": "eval", "validation_rows": 4, "validate_every_steps": 2,
}  # fmt: skip


class Trained:
    """One attempt in this process."""

    def __init__(
        self,
        directory: Path,
        model: Path,
        context: Any,
        *,
        lora: dict[str, Any] | None = None,
        resume: Path | None = None,
        stop_at: int | None = None,
        **dpo: Any,
    ) -> None:
        document = tiny_spec(
            {
                "kind": "dpo", "name": "test", "model": {"base_model": "tiny", "lora": lora},
                "dataset": {"version": "pairs@1"}, "seed": 5, "dpo": DPO | dpo,
                "trainer": {"microbatch_tokens": 40}, "checkpoint": {"every_steps": 2, "keep_last": 5},
            }
        )  # fmt: skip
        self.directory = directory
        (directory / "jobs").mkdir(parents=True)
        attempt = AttemptFile(
            run_id="run_1", attempt_id="att_1", attempt_number=1, epoch=1, spec=document, directory=str(directory),
            model_directory=str(model), dataset_file="", token="secret",
            resume_directory=None if resume is None else str(resume),
        )  # fmt: skip
        self.spec = attempt.run_spec
        self.pairs = tokenize_pairs(preference_rows(10), model)
        held_out = tokenize_pairs(preference_rows(4, split="eval", first=10), model)
        self.stop = threading.Event()
        outbox = Outbox(directory / "jobs", 0)
        self.trainer = DpoTrainer(
            load_sharded_policy(model, self.spec, context, seed=self.spec.seed), self.pairs, held_out,
            attempt=attempt, context=context, outbox=outbox, stop=self.stop,
        )  # fmt: skip
        if stop_at is not None:
            self._stop_at(stop_at)
        self.result: Result = self.trainer.run()
        outbox.close()

    def _stop_at(self, last: int) -> None:
        take_step = self.trainer.train_step

        def counted(step: int) -> dict[str, float] | None:
            if step + 1 == last:
                self.stop.set()
            return take_step(step)

        self.trainer.train_step = counted  # type: ignore[method-assign]

    @property
    def points(self) -> dict[int, dict[str, float]]:
        """x → the metrics that do not measure time."""
        return {
            line.x: {
                name: value for name, value in line.values.items() if not name.startswith(("time/", "perf/"))
            }
            for line in written_lines(self.directory / "jobs")
            if type(line).__name__ == "Points"
        }

    def checkpoint_at(self, step: int) -> Path:
        return self.directory / "checkpoints" / f"step-{step:08d}"


@pytest.fixture(scope="module")
def trained(tiny_model: Path, context: Any, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("whole"), tiny_model, context)


def plain_logprobs(model: Any, pairs: list[Pair]) -> torch.Tensor:
    """[P, 2], one sequence at a time, from whole logits."""
    sums = []
    for pair in pairs:
        for side in pair.examples:
            tokens = torch.tensor([side.tokens])
            logprobs = model(tokens).logits[0].log_softmax(dim=-1)
            positions = torch.tensor(side.target_positions)
            sums.append(logprobs[positions - 1, tokens[0, positions]].sum())
    return torch.stack(sums).view(-1, 2)


def test_every_step_equals_a_plain_computation(trained: Trained, tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM

    policy, reference = (AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32) for _ in "12")
    section = trained.spec.dpo
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=0.0, betas=section.adam_betas, weight_decay=section.weight_decay
    )
    for step in range(section.steps):
        rows = batch_at(step, rows=10, batch_size=section.batch_size, seed=5, kind="dpo")
        batch = [trained.pairs[row] for row in rows]
        with torch.no_grad():
            expected_reference = plain_logprobs(reference, batch)
        logprobs = plain_logprobs(policy, batch)
        rewards = section.beta * (logprobs - expected_reference)
        margin = rewards[:, 0] - rewards[:, 1]
        loss = -functional.logsigmoid(margin).mean()
        found = trained.points[step + 1]
        assert found["dpo/loss"] == pytest.approx(loss.item(), abs=1e-5)
        assert found["dpo/margin"] == pytest.approx(margin.mean().item(), abs=1e-5)
        assert found["dpo/chosen_reward"] == pytest.approx(rewards[:, 0].mean().item(), abs=1e-5)
        assert found["dpo/rejected_reward"] == pytest.approx(rewards[:, 1].mean().item(), abs=1e-5)
        assert found["dpo/chosen_logprob"] == pytest.approx(logprobs[:, 0].mean().item(), abs=1e-4)
        if step > 0:  # before the first update the margins are rounding errors
            assert found["dpo/accuracy"] == pytest.approx((margin > 0).double().mean().item())
        optimizer.param_groups[0]["lr"] = found["optim/learning_rate"]
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), section.max_grad_norm)
        assert found["optim/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
        optimizer.step()
        optimizer.zero_grad()
    held_out = tokenize_pairs(preference_rows(4, split="eval", first=10), tiny_model)
    with torch.no_grad():
        rewards = section.beta * (plain_logprobs(policy, held_out) - plain_logprobs(reference, held_out))
    margin = rewards[:, 0] - rewards[:, 1]
    last = trained.points[section.steps]
    assert last["dpo/validation_loss"] == pytest.approx(
        -functional.logsigmoid(margin).mean().item(), abs=1e-4
    )
    assert last["dpo/validation_margin"] == pytest.approx(margin.mean().item(), abs=1e-4)
    exported = AutoModelForCausalLM.from_pretrained(trained.checkpoint_at(4) / "hf", dtype=torch.float32)
    for name, weight in exported.named_parameters():
        # AdamW's first steps turn rounding errors of tiny gradients into steps of their own: weights move by 1e-2.
        torch.testing.assert_close(weight, policy.get_parameter(name), rtol=0, atol=1e-4)


def test_pairs_are_learned_and_validation_comes_when_it_is_due(trained: Trained) -> None:
    assert trained.result == Result(4)
    assert trained.points[1]["dpo/loss"] == pytest.approx(0.6931, abs=1e-4)
    assert trained.points[4]["dpo/margin"] > 0.5 and trained.points[4]["dpo/accuracy"] == 1.0
    assert [step for step, values in trained.points.items() if "dpo/validation_loss" in values] == [2, 4]


def test_checkpoints_are_committed_when_they_are_due_and_at_the_end(trained: Trained) -> None:
    lines = [
        line for line in written_lines(trained.directory / "jobs") if type(line).__name__ == "CheckpointLine"
    ]
    assert [(line.step, line.final) for line in lines] == [(2, False), (4, True)]
    record, _ = checkpoint.verify(trained.checkpoint_at(2))
    assert (record.kind, record.step, record.seed) == ("dpo", 2, 5)


@pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["all weights", "LoRA"])
def test_a_resumed_run_takes_exactly_the_same_steps(
    tiny_model: Path, context: Any, tmp_path: Path, trained: Trained, lora: dict[str, Any] | None
) -> None:
    whole = trained if lora is None else Trained(tmp_path / "whole", tiny_model, context, lora=lora)
    resumed = Trained(tmp_path / "resumed", tiny_model, context, lora=lora, resume=whole.checkpoint_at(2))
    assert resumed.points == {step: whole.points[step] for step in (3, 4)}
    files = [one.checkpoint_at(4) / ("hf" if lora is None else "adapter") for one in (whole, resumed)]
    first, second = ([file.read_bytes() for file in sorted(folder.glob("*.safetensors"))] for folder in files)
    assert first and first == second
    assert json.loads((resumed.checkpoint_at(4) / "trainer.json").read_text())["parent"] is not None


def test_a_stop_commits_the_step_that_was_reached(tiny_model: Path, context: Any, tmp_path: Path) -> None:
    stopped = Trained(tmp_path / "run", tiny_model, context, stop_at=3)
    assert stopped.result == Result(3, EndReason.STOPPED_BY_USER, "stopped after 3 of 4 steps")
    assert checkpoint.verify(stopped.checkpoint_at(3))[0].step == 3


def test_a_checkpoint_of_another_kind_is_rejected(
    tiny_model: Path, context: Any, tmp_path: Path, trained: Trained
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    record = json.loads((trained.checkpoint_at(2) / "trainer.json").read_text()) | {"kind": "sft"}
    data = json.dumps(record).encode()
    (folder / "trainer.json").write_bytes(data)
    entry = {"name": "trainer.json", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "MANIFEST.json").write_text(json.dumps({"format": 1, "step": 2, "files": [entry]}))
    with pytest.raises(
        checkpoint.InvalidCheckpoint, match="kind 'sft', but a dpo run needs one of kind 'dpo'"
    ):
        Trained(tmp_path / "run", tiny_model, context, resume=folder)
