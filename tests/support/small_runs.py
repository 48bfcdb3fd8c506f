"""Small real runs and what must be true of them afterwards, read from files and tables rather than from claims."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu_agents.rollout.controller.prompt_order import PromptOrder, one_source
from oolong.client import Client
from oolong.client.models import Run, Span
from oolong.contracts.attempt import LOG_FILE
from oolong.contracts.telemetry import Points
from tests.support.archives import unpack
from tests.support.control_plane import ROOT
from tests.support.outboxes import written_lines
from tests.support.stack import Node, Stack, until
from tests.support.tiny_specs import tiny_spec

ROWS, EVAL_ROWS = 3000, 32
GROUPS_PER_STEP = 8
TOLERATED_MISMATCH = 1e-4  # float32 engine and trainer at the same weights
BOOT_SECONDS = 300.0  # an engine on two cores that others use too


@dataclass(frozen=True)
class Inputs:
    dataset: str
    model: str


def lively_model(directory: Path, *, node_python: Path) -> Path:
    """See tests/support/lively_model.py."""
    subprocess.run(
        [str(node_python), str(ROOT / "tests/support/lively_model.py"), str(directory)],
        env=_node_environment(), cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return directory


def upload_inputs(stack: Stack, model: Path, client: Client | None = None) -> Inputs:
    """Of the client's project; of the stack's own unless another is named."""
    file = stack.folder / "rows.jsonl"
    rows = [
        {
            "question": f"bit {number}",
            "answer": str(number % 2),
            "solution": str(number % 2),
            "split": "eval" if number >= ROWS else "train",
        }
        for number in range(ROWS + EVAL_ROWS)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    mapping = {
        "prompt_column": "question", "answer_column": "answer", "completion_column": "solution",
        "split_column": "split", "default_split": "train", "template": "{question}", "system": "",
    }  # fmt: skip
    client = client or stack.client()
    version = client.datasets.upload(file, name="bits", mapping=mapping)
    return Inputs(dataset=version.id, model=client.models.upload(model, name="lively").id)


def spec(inputs: Inputs, *, steps: int, **sections: dict[str, Any]) -> dict[str, Any]:
    """An asynchronous rl run of seconds; `sections` are merged into those of the spec."""
    document: dict[str, Any] = {
        "kind": "rl", "name": "small", "seed": 3,
        "model": {"base_model": inputs.model},
        "dataset": {"version": inputs.dataset, "split": "train"},
        "reward": {"name": "exact_match", "options": {"extract": "regex", "pattern": "[01]"}},
        "rollout": {
            "engines": 1, "group_size": 4, "max_concurrent_groups": 24, "max_new_tokens": 128,
            "max_prompt_tokens": 64, "engine_max_running_requests": 48, "engine_max_total_tokens": 16384,
        },
        "staleness": {"max": 4},
        "trainer": {
            "total_train_steps": steps, "groups_per_step": GROUPS_PER_STEP, "minibatches": 2, "learning_rate": 1e-3,
        },
        "checkpoint": {"every_steps": 5, "keep_last": 2},
    }  # fmt: skip
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values} if isinstance(values, dict) else values
    return tiny_spec(document)


def sft_spec(inputs: Inputs, *, steps: int) -> dict[str, Any]:
    """A supervised run: one job, no engine."""
    return tiny_spec({
        "kind": "sft", "name": "small sft", "model": {"base_model": inputs.model},
        "dataset": {"version": inputs.dataset, "split": "train"},
        "sft": {"steps": steps, "batch_size": 4, "validation_split": None, "required_greedy_accuracy": None},
    })  # fmt: skip


# --- following a run ----------------------------------------------------------------------------------------


def wait_for_step(stack: Stack, run_id: str, step: int, *, seconds: float = 60.0) -> None:
    """Until the trainer has said so in its outbox; past the control plane, which may be away."""
    until(
        lambda: last_step(stack.nodes.values()) >= step,
        seconds=seconds + (BOOT_SECONDS if last_step(stack.nodes.values()) == 0 else 0),
        what=f"train step {step}", said=stack.said,
    )  # fmt: skip
    del run_id


def wait_for_end(stack: Stack, client: Client, run_id: str, *, seconds: float) -> Run:
    run = until(lambda: _ended(client, run_id), seconds=seconds, what=f"the end of {run_id}", said=stack.said)
    assert isinstance(run, Run)
    return run


def wait_for_status(stack: Stack, client: Client, run_id: str, *statuses: str, seconds: float) -> Run:
    def reached() -> Run | None:
        run = client.runs.get(run_id)
        assert run.status in statuses or not run.ended, f"{run.status}: {run.reason_message}\n{stack.said()}"
        return run if run.status in statuses else None

    run = until(reached, seconds=seconds, what=f"{run_id} is {' or '.join(statuses)}", said=stack.said)
    assert isinstance(run, Run)
    return run


def _ended(client: Client, run_id: str) -> Run | None:
    run = client.runs.get(run_id)
    return run if run.ended else None


def last_step(nodes: Iterable[Node]) -> int:
    """The newest train step of the trainers' outboxes, of the newest attempt that has one.

    Comparisons of probes come later, under the step that they belong to, so they do not count.
    """
    newest = (0.0, 0)
    for node in nodes:
        for job, directory in node.jobs():
            if job.name == "trainer":
                for line in points_of(directory):
                    if "reward/mean" in line.values:
                        newest = max(newest, (line.at, line.x))
    return newest[1]


def steps_of(node: Node, attempt: str) -> list[int]:
    """Every step that the trainer of an attempt wrote down, in its order."""
    return [
        line.x
        for job, directory in node.jobs()
        if job.name == "trainer" and directory.parts[-3] == attempt
        for line in points_of(directory)
        if "reward/mean" in line.values
    ]


# --- what must be true --------------------------------------------------------------------------------------


def assert_balanced(run: Run) -> None:
    """Ledger and tokens add up, and every summary is there."""
    for name in ("trainer", "controller", "rollout-0"):
        assert name in run.summary, f"the summary lacks {name!r}; it has {sorted(run.summary)}"
    ledger = run.summary["controller"]["ledger"]
    places = sum(ledger[place] for place in ("trained", "waiting", "running", "buffered", "taken"))
    assert ledger["drawn"] == places + sum(ledger["dropped_by_reason"].values()), ledger
    assert ledger["trained"] == run.train_step * run.spec["trainer"]["groups_per_step"], ledger
    tokens = run.summary["controller"]["tokens"]
    fates = (
        tokens["trained"] + sum(tokens["dropped"].values()) + tokens["in_hand"] + tokens["lost_to_recovery"]
    )
    assert tokens["generated"] == fates, tokens


def assert_lost_tokens_are_counted(stack: Stack, run: Run) -> None:
    """The last attempt accounts for all that the earlier ones said they had made."""
    rows = stack.rows("SELECT tokens_generated FROM runs_attempt WHERE run_id = %s ORDER BY number", run.id)
    told = [int(row[0]) for row in rows]
    tokens = run.summary["controller"]["tokens"]
    assert len(told) > 1 and told == sorted(told) and told[0] > 0, told
    assert tokens["generated"] == told[-1], (tokens, told)
    assert tokens["lost_to_recovery"] > 0, tokens


def assert_engine_matches_trainer(run: Run) -> None:
    mismatch = run.summary["trainer"]["engine_mismatch"]
    assert mismatch["tokens_compared"] > 0, mismatch
    assert mismatch["max"] < TOLERATED_MISMATCH, mismatch


def assert_every_point_is_stored_once(stack: Stack) -> None:
    """The multiset of points in the database equals that of the outbox files of all nodes."""
    written: Counter[tuple[Any, ...]] = Counter()
    for node in stack.nodes.values():
        for job, directory in node.jobs():
            source = job.name if job.incarnation == 0 else f"{job.name}#{job.incarnation}"
            for line in points_of(directory):
                part = f"{source}/{line.source}" if line.source else source
                for name, value in line.values.items():
                    written[directory.parts[-3], name, part, line.axis, line.x, value] += 1
    stored = Counter(
        stack.rows(
            "SELECT s.attempt_id, s.name, s.source, s.axis, p.x, p.value "
            "FROM telemetry_metricpoint p JOIN telemetry_metricseries s ON s.id = p.series_id"
        )
    )
    assert written and max(written.values()) == 1
    assert stored == written, f"lost: {list(written - stored)[:5]}, invented: {list(stored - written)[:5]}"
    assert stack.value("SELECT coalesce(sum(conflicts + bad_lines), 0) FROM telemetry_outboxfile") == 0


def trained_groups(stack: Stack, run_id: str) -> dict[int, list[str]]:
    """What each policy version of the run's final line of weights was trained on.

    The controllers log the ids. Of an attempt that was lost, only the versions up to the checkpoint that the
    next one resumed from are part of that line.
    """
    attempts = stack.rows(
        "SELECT a.id, c.step FROM runs_attempt a LEFT JOIN checkpoints_checkpoint c ON c.id = a.resume_checkpoint_id "
        "WHERE a.run_id = %s ORDER BY a.number",
        run_id,
    )
    trained: dict[int, list[str]] = {}
    for attempt, resumed_at in attempts:
        trained = {version: ids for version, ids in trained.items() if version <= (resumed_at or 0)}
        for node in stack.nodes.values():
            log = node.data / "attempts" / attempt / "supervision" / "controller-0" / LOG_FILE
            if log.exists():
                for found in re.finditer(r"version (\d+) was trained on (.+)", log.read_text()):
                    trained[int(found[1])] = found[2].split()
    return trained


def assert_timeline_is_true(client: Client, run: Run) -> None:
    """Spans of every kind exist, an engine generates with the version that it loaded and never while it loads, and an
    interrupted trajectory continues with a newer version."""
    timeline = client.runs.timeline(run.id, limit=10_000)
    assert {"rollout-0", "trainer"} <= set(timeline.lanes)
    lanes = {(span.lane, span.attempt) for span in timeline.data}
    spans = {key: [s for s in timeline.data if (s.lane, s.attempt) == key] for key in lanes}
    kinds = {lane: {s.kind for s in timeline.data if s.lane == lane} for lane in timeline.lanes}
    assert {"generate", "reward", "load"} <= kinds["rollout-0"], kinds
    assert {"wait", "train", "publish", "checkpoint"} <= kinds["trainer"], kinds
    continued = False
    for (lane, _attempt), own in spans.items():
        if lane == "trainer":
            assert all(first.end <= second.start for first, second in pairwise(own)), "trainer phases overlap"
            continue
        loads = [span for span in own if span.kind == "load"]
        rollouts: dict[tuple[str, int | None], list[Span]] = {}
        for span in [span for span in own if span.kind == "generate"]:
            overlapping = [load for load in loads if load.start < span.end and span.start < load.end]
            assert not overlapping, ("it generates while it loads", span, overlapping)
            loaded = max((load for load in loads if load.end <= span.start), key=lambda load: load.end)
            assert span.version == loaded.version, (span, loaded)
            rollouts.setdefault((span.group_id, span.member), []).append(span)
        for segments in rollouts.values():
            assert all(first.end <= second.start for first, second in pairwise(segments)), segments
            continued |= any(
                first.outcome == "interrupted" and first.version < second.version
                for first, second in pairwise(segments)
                if first.version is not None and second.version is not None
            )
    assert continued, "no interrupted trajectory continued with a newer version"


def assert_no_gap_and_no_repeat(stack: Stack, run: Run, *, failing_rows: int = 0) -> None:
    """Every prompt that was drawn was trained on once, but those whose reward fails (each `failing_rows`-th row)."""
    trained = trained_groups(stack, run.id)
    assert sorted(trained) == list(range(1, run.total_train_steps + 1))
    batch = run.spec["trainer"]["groups_per_step"]
    assert {len(ids) for ids in trained.values()} == {batch}
    ids = [group for version in sorted(trained) for group in trained[version]]
    assert len(ids) == len(set(ids)), [group for group, count in Counter(ids).items() if count > 1]

    ledger = run.summary["controller"]["ledger"]
    order = PromptOrder(one_source(range(ROWS)), seed=run.spec["seed"])
    drawn = [order.next() for _ in range(ledger["drawn"])]
    failing = {draw.group_id for draw in drawn if failing_rows and draw.row % failing_rows == 0}
    assert set(ids) == {draw.group_id for draw in drawn} - failing
    assert ledger["dropped_by_reason"] == ({"error": len(failing)} if failing else {})


def assert_nothing_is_left(stack: Stack) -> None:
    """No process of any job lives, and no slot is held."""
    for node in stack.nodes.values():
        until(lambda node=node: not node.job_processes(), seconds=60, what=f"no job lives on {node.name}")  # type: ignore[misc]
    held = "SELECT count(*) FROM fleet_lease WHERE released_at IS NULL"
    until(lambda: stack.value(held) == 0, seconds=60, what="no slot is held", said=stack.said)


def assert_checkpoint_is_whole(stack: Stack, client: Client, checkpoint_id: str, target: Path) -> None:
    """It downloads, its manifest names every file rightly, and transformers loads and runs what it exports."""
    stored = client.checkpoints.get(checkpoint_id)
    assert stored.state == "STORED"
    archive = client.checkpoints.download(checkpoint_id, target / "checkpoint.tar")
    with tarfile.open(archive) as tar:
        unpack(tar, target / "checkpoint")
    (manifest_file,) = (target / "checkpoint").rglob("MANIFEST.json")
    assert hashlib.sha256(manifest_file.read_bytes()).hexdigest() == stored.sha256
    root = manifest_file.parent
    listed = {item["name"]: item for item in json.loads(manifest_file.read_bytes())["files"]}
    present = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {"MANIFEST.json"}
    assert present == set(listed)
    for name, item in listed.items():
        data = (root / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (item["bytes"], item["sha256"]), name
    program = (
        "import sys, torch; from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1]); AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "assert torch.isfinite(model(torch.tensor([[65, 66, 67]])).logits).all()\n"
    )
    loaded = subprocess.run(
        [str(stack.node_python), "-c", program, str(root / "hf")], env=_node_environment(), capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr[-2000:]


def points_of(directory: Path) -> list[Points]:
    return [line for line in written_lines(directory) if isinstance(line, Points)]


def _node_environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/tmp"), "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
