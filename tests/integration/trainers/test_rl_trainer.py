"""The trainer program over a scripted controller: its order of calls, its records, its ends, its resume."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from oolong.contracts import rollout
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.metrics import METRICS
from oolong.system.rpc import RpcError
from tests.integration.trainers.fake_controller import FakeController, recorded_batches, sampled
from tests.support.waiting import wait_until
from trainers import checkpoint
from trainers.durable_files import write_json
from trainers.rl.controller_client import ControllerClient

SMALL: dict[str, Any] = {
    "rollout": {"group_size": 4},
    "trainer": {"total_train_steps": 6, "groups_per_step": 4, "minibatches": 2, "microbatch_tokens": 256},
    "checkpoint": {"every_steps": 3, "keep_last": 5},
}
BATCHES = recorded_batches(groups=4, members=4)


@pytest.fixture(scope="module")
def whole(start_trainer: Callable[..., Any]) -> tuple[Any, FakeController]:
    """A run of six steps with checkpoints at 3 and 6, and the controller that it talked to."""
    with FakeController(BATCHES) as controller:
        run = start_trainer(SMALL, controller_url=controller.url)
        assert run.finish() == 0, run.log
    return run, controller


def test_run_publishes_checkpoints_and_writes_its_summary(
    whole: tuple[Any, FakeController],
) -> None:
    run, controller = whole
    assert run.result.reason is EndReason.COMPLETED
    assert [(one.version, one.outcome) for one in controller.announced] == [
        (0, "none"), *((version, "trained") for version in range(1, 7)),
    ]  # fmt: skip
    assert (
        controller.taken == list(range(6))
        and controller.snapshots == [3, 6]
        and controller.ended == ["completed"]
    )
    for one in controller.announced[1:]:
        assert_values_of_sampled_trajectories(one, BATCHES(one.version - 1))
    lines = run.lines()
    checkpoints = [line for line in lines if type(line).__name__ == "CheckpointLine"]
    assert [(line.step, line.final) for line in checkpoints] == [(3, False), (6, True)]
    for line in checkpoints:
        record, sha256 = checkpoint.verify(Path(line.directory))
        assert (record.step, sha256) == (line.step, line.manifest_sha256)
        assert line.bytes == sum(
            path.stat().st_size for path in Path(line.directory).rglob("*") if path.is_file()
        )
    assert sorted(run.points()) == list(range(1, 7))
    for values in run.points().values():
        assert set(values) <= set(METRICS) and all(math.isfinite(value) for value in values.values())
        phases = ("wait_batch", "prepare", "proximal", "train", "publish", "checkpoint")
        parts = sum(values[f"time/{phase}_seconds"] for phase in phases)
        assert parts == pytest.approx(values["time/step_seconds"], rel=0.02)
    [summary] = [line.value for line in lines if type(line).__name__ == "Summary"]
    assert summary["train_steps"] == 6 and summary["weight_sync"]["versions"] == 7
    tokens = sum(
        len(t.token_ids) for version in range(6) for group in BATCHES(version) for t in group.trajectories
    )
    assert (
        summary["tokens_trained"]
        == tokens
        == sum(one["perf/trained_tokens"] for one in run.points().values())
    )


def assert_values_of_sampled_trajectories(
    announced: rollout.PublishVersionRequest, groups: list[rollout.Group]
) -> None:
    assert sorted((one.group_id, one.member) for one in announced.tokens) == sorted(sampled(groups))
    for one in announced.tokens:
        [group] = [group for group in groups if group.group_id == one.group_id]
        mask = [bool(trained) for trained in group.trajectories[one.member].loss_mask]
        assert [value is not None for value in one.logprobs] == mask
        assert [value is not None for value in one.advantages] == mask


def test_run_checks_packing_once_and_reports_packing_metrics(
    whole: tuple[Any, FakeController],
) -> None:
    run, _ = whole
    assert (
        run.log.count("packing check: log-probabilities of packed and single sequences differ by at most")
        == 1
    )
    for step, values in run.points().items():
        groups = BATCHES(step - 1)
        lengths = [
            [len(group.prompt_token_ids) + len(one.token_ids) for one in group.trajectories]
            for group in groups
        ]
        halves = [sum(map(sum, lengths[:2])), sum(map(sum, lengths[2:]))]  # tokens of the two minibatches
        assert values["packing/tokens"] == sum(halves)
        assert values["packing/microbatches"] >= sum(-(-tokens // 256) for tokens in halves)
        assert values["packing/utilization"] == pytest.approx(
            sum(halves) / (values["packing/microbatches"] * 256)
        )
        assert values["packing/flops_imbalance"] == pytest.approx(1.0)


def test_phase_times_add_up_to_the_time_between_steps(
    whole: tuple[Any, FakeController],
) -> None:
    """Against the clock of the outbox, not against their own sum: no part of the loop is outside every phase.

    A record is written in the first phase after its step, `prepare` of the next one: its time may be later than the
    step's end by so much, and by no more.
    """
    lines = [line for line in whole[0].lines() if type(line).__name__ == "Points"]
    steps = [line for line in lines if "time/step_seconds" in line.values]
    assert [line.x for line in steps] == list(range(1, 7))
    phases = ("wait_batch", "prepare", "proximal", "train", "publish", "checkpoint")
    for before, line, after in zip(steps, steps[1:], steps[2:], strict=False):
        parts = sum(line.values[f"time/{phase}_seconds"] for phase in phases)
        longer = line.at - before.at - parts
        rounding = 0.001
        assert -line.values["time/prepare_seconds"] - rounding <= longer
        assert longer <= after.values["time/prepare_seconds"] + rounding
        assert line.values["time/step_seconds"] == pytest.approx(parts)


def test_published_manifests_match_the_announced_versions(whole: tuple[Any, FakeController]) -> None:
    _, controller = whole
    for announced in controller.announced:
        manifest = (Path(announced.weights.directory) / "manifest.json").read_bytes()
        assert hashlib.sha256(manifest).hexdigest() == announced.weights.manifest_sha256
        assert json.loads(manifest)["version"] == announced.version


def test_resume_is_bit_equal_on_recorded_batches(
    start_trainer: Callable[..., Any], whole: tuple[Any, FakeController]
) -> None:
    run, _ = whole
    middle = run.directory / "checkpoints" / "step-00000003"
    snapshot = msgspec.msgpack.decode((middle / "controller.msgpack").read_bytes())
    with FakeController(BATCHES, trained=snapshot["trained"]) as controller:
        resumed = start_trainer(
            {**SMALL, "seed": 77},  # of no use to a resume: the random state is the checkpoint's
            controller_url=controller.url,
            resume_directory=str(middle),
            attempt_number=2,
        )
        assert resumed.finish() == 0, resumed.log
    assert [one.version for one in controller.announced] == [3, 4, 5, 6]
    learned = [name for name in METRICS if not name.startswith(("time/", "perf/", "idle/", "memory/"))]
    for step in (4, 5, 6):
        before, after = run.points()[step], resumed.points()[step]
        assert {name: before.get(name) for name in learned} == {name: after.get(name) for name in learned}
    last = "checkpoints/step-00000006"
    weights = [load_file(one.directory / last / "hf/model.safetensors") for one in (run, resumed)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    records = [checkpoint.verify(one.directory / last)[0] for one in (run, resumed)]
    assert records[0].tokens_trained == records[1].tokens_trained
    assert records[0].first_rewards == records[1].first_rewards
    assert records[0].random_state == records[1].random_state
    assert records[1].parent == checkpoint.verify(middle)[1]


@pytest.mark.parametrize("damage", ["a byte of the state", "another ledger", "another kind"])
def test_resume_from_a_mismatched_checkpoint_is_rejected(
    start_trainer: Callable[..., Any], whole: tuple[Any, FakeController], tmp_path: Path, damage: str
) -> None:
    resume = tmp_path / "resume"
    shutil.copytree(whole[0].directory / "checkpoints" / "step-00000003", resume)
    trained, said = 13, "ledger has 13 trained groups, but the trainer's step 3 requires 12"
    if damage == "a byte of the state":
        flip_a_byte(next((resume / "state").glob("*.distcp")))
        trained, said = 12, "does not have the sha256 that its manifest lists"
    if damage == "another kind":
        record, _ = checkpoint.verify(resume)
        write_json(resume / "trainer.json", msgspec.structs.replace(record, kind="sft"))
        (resume / "MANIFEST.json").unlink()
        write_json(
            resume / "MANIFEST.json", checkpoint.Manifest(step=3, files=checkpoint._list_files(resume))
        )
        trained, said = 12, "is a checkpoint of kind 'sft', but an rl run needs"
    with FakeController(BATCHES, trained=trained) as controller:
        run = start_trainer(SMALL, controller_url=controller.url, resume_directory=str(resume))
        assert run.finish() == 1
    assert run.result.reason is EndReason.NO_VALID_CHECKPOINT and said in run.result.message
    assert controller.announced == []


def test_uncommitted_or_damaged_directory_does_not_verify(
    whole: tuple[Any, FakeController], tmp_path: Path
) -> None:
    good = whole[0].directory / "checkpoints" / "step-00000003"
    for damage, said in (
        (lambda one: (one / "MANIFEST.json").unlink(), "not a committed checkpoint"),
        (lambda one: (one / "trainer.json").write_bytes(b"{}"), "bytes, its manifest lists"),
        (lambda one: (one / "hf/model.safetensors").unlink(), "not a committed checkpoint"),
        (lambda one: flip_a_byte(one / "controller.msgpack"), "sha256"),
    ):
        broken = tmp_path / "broken"
        shutil.copytree(good, broken)
        damage(broken)
        with pytest.raises(checkpoint.InvalidCheckpoint, match=said):
            checkpoint.verify(broken)
        shutil.rmtree(broken)


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()  # the export may share its bytes with a published version
    file.write_bytes(data)


def test_sigterm_finishes_the_step_commits_a_checkpoint_and_stops(
    start_trainer: Callable[..., Any],
) -> None:
    spec = {**SMALL, "trainer": {**SMALL["trainer"], "total_train_steps": 100_000}}
    with FakeController(BATCHES) as controller:
        run = start_trainer(spec, controller_url=controller.url)
        wait_until(lambda: run.process.poll() is not None or controller.version >= 4, lambda: run.log)
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 0, run.log
    assert run.result.reason is EndReason.STOPPED_BY_USER and controller.ended == ["stopped"]
    newest = sorted((run.directory / "checkpoints").glob("step-*"))[-1]
    record, _ = checkpoint.verify(newest)
    assert record.step == controller.version == controller.snapshots[-1]
    final = [line for line in run.lines() if type(line).__name__ == "CheckpointLine" and line.final]
    assert [line.step for line in final] == [record.step]


def test_nonfinite_step_changes_nothing_and_three_consecutive_ones_end_the_run(
    start_trainer: Callable[..., Any],
) -> None:
    def poisoned(version: int) -> list[rollout.Group]:
        groups = BATCHES(version)
        if version < 2:
            return groups
        last = groups[-1].trajectories[-1]  # in the second minibatch: the first has moved the weights by then
        nan = msgspec.structs.replace(last, behavior_logprobs=[math.nan] * len(last.token_ids))
        rest = msgspec.structs.replace(groups[-1], trajectories=[*groups[-1].trajectories[:-1], nan])
        return [*groups[:-1], rest]

    with FakeController(poisoned) as controller:
        run = start_trainer(SMALL, controller_url=controller.url)
        assert run.finish() == 1
    assert run.result.reason is EndReason.NONFINITE_LOSS and "3 consecutive steps" in run.result.message
    assert [(one.version, one.outcome) for one in controller.announced][2:] == [
        (2, "trained"),
        *[(2, "nonfinite")] * 3,
    ]
    assert controller.taken == [0, 1, 2, 2, 2] and controller.ended == ["failed"]


def test_controller_error_is_raised_with_its_code() -> None:
    with FakeController(BATCHES, token="another") as controller:
        client = ControllerClient(controller.url, "secret")
        with pytest.raises(RpcError, match="unauthorized: wrong token"):
            client.snapshot(0)
        client.close()


def test_probes_are_verified_against_the_engines_version(start_trainer: Callable[..., Any]) -> None:
    """Right probes of each version come late, as they do; one engine computes something else and is named."""
    from transformers import AutoModelForCausalLM

    prompt = [10, 20, 30, 40]
    spec = {**SMALL, "trainer": {**SMALL["trainer"], "total_train_steps": 3, "learning_rate": 0.05}}
    asked: list[int] = []

    def late_probes(version: int) -> list[rollout.Group]:
        if (
            version >= 1 and version not in asked
        ):  # the probe of the version before, when the next is being trained
            asked.append(version)
            directory = Path(controller.announced[version - 1].weights.directory)
            model = AutoModelForCausalLM.from_pretrained(directory)
            with torch.no_grad():
                tokens = model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)[
                    0, 4:
                ].tolist()
                logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, 3:-1]
            logprobs = logits.log_softmax(-1)[range(len(tokens)), tokens].tolist()
            off = [logprobs[0] - 0.01, *logprobs[1:]]
            for worker, reported in (
                ("rollout-0/0", logprobs),
                ("rollout-1/0", off if version == 2 else logprobs),
            ):
                probe = rollout.Probe(prompt_token_ids=prompt, token_ids=tokens, logprobs=reported)
                controller.probes.append(
                    rollout.AckedProbe(worker_id=worker, version=version - 1, probe=probe)
                )
        return BATCHES(version)

    with FakeController(late_probes) as controller:
        run = start_trainer(spec, controller_url=controller.url)
        assert run.finish() == 0, run.log
    assert [(one.worker_id, one.version) for one in controller.stale] == [("rollout-1/0", 1)]
    points = run.points()
    assert points[0]["mismatch/logprob_abs_max"] < 1e-5 and points[0]["mismatch/tokens"] == 16
    assert points[1]["mismatch/logprob_abs_max"] == pytest.approx(0.01, abs=1e-4)
    [summary] = [line.value for line in run.lines() if type(line).__name__ == "Summary"]
    assert (
        summary["engine_mismatch"]["tokens_compared"] == 32
        and summary["engine_mismatch"]["versions_covered"] == 2
    )
    assert any(type(line).__name__ == "Note" and line.kind == "engine_stale" for line in run.lines())


def test_unsupported_option_ends_the_run_with_the_reason(
    start_trainer: Callable[..., Any],
) -> None:
    spec = {**SMALL, "trainer": {**SMALL["trainer"], "compile": True, "dtype": "bfloat16"}}
    with FakeController(BATCHES) as controller:
        run = start_trainer(spec, controller_url=controller.url)
        assert run.finish() == 1
    assert run.result.reason is EndReason.CONFIG_REJECTED
    assert "trainer.compile=true is supported on CUDA only, not on cpu" in run.result.message
    assert controller.announced == []
