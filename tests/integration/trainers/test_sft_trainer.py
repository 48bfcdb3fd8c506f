"""The warm start as a program: it learns, it stops when it is good enough, and it says when it is not."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from oolong.contracts.lifecycle import EndReason
from oolong.merging.directories import merge_directories
from oolong.samples.demo_dataset import LetterSum, rows
from tests.support.listening import beyond_loopback, listeners
from tests.support.waiting import wait_until
from trainers import checkpoint


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short questions to learn by heart, which validate too."""
    file = tmp_path_factory.mktemp("data") / "rows.jsonl"
    task = LetterSum(noise=0.0, rows={"validation": 200})
    short = [row for row in rows(task) if len(row["question"]) < 10][:4]
    with file.open("w") as lines:
        for number, (split, row) in enumerate(itertools.product(("sft", "validation"), short)):
            document = {
                "row": number, "split": split, "messages": [{"role": "user", "content": row["question"]}],
                "answer": row["answer"], "completion": row["solution"],
            }  # fmt: skip
            lines.write(json.dumps(document) + "\n")
    return file


def spec(**sft: Any) -> dict[str, Any]:
    return {
        "kind": "sft", "dataset": {"version": "d@1", "split": "sft"}, "seed": 5,
        "sft": {"batch_size": 4, "warmup_steps": 5, "validate_from_step": 50, "validate_every_steps": 25, **sft},
    }  # fmt: skip


@pytest.mark.parametrize("lora", [None, {"rank": 32}], ids=["all weights", "LoRA"])
def test_sft_stops_at_the_target_accuracy_and_greedy_decoding_agrees(
    start_trainer: Callable[..., Any],
    tiny_model: Path,
    dataset: Path,
    tmp_path: Path,
    lora: dict[str, Any] | None,
) -> None:
    """The export, which has merged weights with LoRA, decodes what the trainer measured."""
    document = spec(steps=400, stop_at_greedy_accuracy=1.0)
    run = start_trainer(
        {**document, "model": {"base_model": "tiny", "lora": lora}}, dataset_file=str(dataset)
    )
    assert run.finish() == 0, run.log
    [summary] = [line.value for line in run.lines() if type(line).__name__ == "Summary"]
    assert run.log.count("packing check: log-probabilities of packed and single sequences differ") == 1
    assert summary["greedy_accuracy"] == 1.0 and summary["steps"] < 400 and summary["seed"] == 5
    [line] = [line for line in run.lines() if type(line).__name__ == "CheckpointLine"]
    record, _ = checkpoint.verify(Path(line.directory))
    assert (record.kind, record.step, line.final) == ("sft", summary["steps"], True)
    losses = [values["sft/loss"] for values in run.points().values()]
    assert all(values["time/train_seconds"] > 0 for values in run.points().values())
    assert losses[-1] < losses[0] / 4
    model = Path(line.directory) / "hf"
    if lora is not None:  # the checkpoint holds the adapter alone
        assert not model.exists()
        model = tmp_path / "merged"
        model.mkdir()
        merge_directories(tiny_model, [Path(line.directory) / "adapter"], model)
    assert decoded_greedily(model, dataset) == 4


def decoded_greedily(model_directory: Path, dataset: Path) -> int:
    """Rows that real greedy decoding by transformers reproduces."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (one.from_pretrained(model_directory) for one in (AutoModelForCausalLM, AutoTokenizer))
    right = 0
    for line in dataset.read_text().splitlines()[4:]:
        row = json.loads(line)
        prompt = tokenizer.apply_chat_template(
            row["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        made = model.generate(torch.tensor([prompt]), max_new_tokens=64, do_sample=False)[
            0, len(prompt) :
        ].tolist()
        right += made == [*tokenizer.encode(row["completion"]), tokenizer.eos_token_id]
    return right


def test_sft_below_the_required_accuracy_retries_another_seed_then_fails(
    start_trainer: Callable[..., Any], dataset: Path
) -> None:
    run = start_trainer(spec(steps=10, required_greedy_accuracy=0.85), dataset_file=str(dataset))
    assert run.finish() == 1
    assert run.result.reason is EndReason.SFT_TARGET_NOT_REACHED
    assert "seed 6" in run.result.message and "required_greedy_accuracy=0.85" in run.result.message
    assert sorted(run.points()) == [10, 20]
    assert not (run.directory / "checkpoints").exists()


def test_sigterm_to_the_process_group_commits_a_checkpoint(
    start_trainer: Callable[..., Any], dataset: Path
) -> None:
    run = start_trainer(spec(steps=100_000, validation_split=None), num_ranks=2, dataset_file=str(dataset))
    outbox = run.job_directory / "outbox" / "main-0.jsonl"
    wait_until(
        lambda: run.process.poll() is not None or (outbox.exists() and len(run.points()) >= 2),
        lambda: run.log,
        seconds=300,  # two ranks import torch first
    )
    assert run.process.poll() is None, run.log
    found = listeners(run.process.pid)
    assert found, "the two ranks talk over no socket"
    # One socket for each rank in each group, which are two: what a stranger on the machine may reach is no more.
    assert len(found) <= 2 * 2, found
    assert beyond_loopback(run.process.pid) == []
    os.killpg(run.process.pid, signal.SIGTERM)
    run.finish()
    assert run.result.reason is EndReason.STOPPED_BY_USER, run.log
    [directory] = (run.directory / "checkpoints").glob("step-*")
    assert checkpoint.verify(directory)[0].step > 0
