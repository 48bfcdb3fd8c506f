"""docs/ci/gate.sh for real: the script, the command, a control plane, an agent, and jobs that are small scripts.

What a job measures is set by the spec's notes (tests/support/small_job.py); everything else is as in a pipeline.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from oolong.client.models import Run
from tests.integration.agent.test_with_control_plane import Node, Pool, plane, pool, until  # noqa: F401
from tests.support.quick_command import quick_command
from tests.support.small_jobs import ROOT, start_agent

pytestmark = pytest.mark.timeout(1800)

PROMPTS = 96
SLOTS = 4  # and as many pipelines at a time
SHIM = """#!/bin/sh
{command} "$@" || exit $?
if [ "$1 $2" = "dataset upload" ] && [ -f other.jsonl ]; then
  {command} dataset upload other.jsonl --name rows --prompt-column q --answer-column a \\
    --completion-column c > other.id 2> /dev/null
  rm other.jsonl
fi
"""


@dataclass
class Gated:
    code: int
    said: str
    run: Run | None
    dataset: str  # what the script uploaded
    failures: int  # of the JUnit report
    errors: int


class Pipeline:
    """A repository with one dataset file, and the job that gates it."""

    def __init__(self, pool: Pool, folder: Path, command: str) -> None:  # noqa: F811
        self.pool, self.folder = pool, folder
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "oolong").write_text(SHIM.format(command=command))
        (folder / "bin" / "oolong").chmod(0o755)
        self.write("rows.jsonl", 32)

    def write(self, name: str, rows: int) -> None:
        lines = [json.dumps({"q": f"{n}", "a": f"{n}", "c": f"{n}"}) for n in range(rows)]
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def gate(self, alias: str, rates: list[float], *, seed: int, **variables: str) -> Gated:
        """`rates`: how likely each prompt of the closing evaluation is right."""
        chance = random.Random(seed)
        digits = "".join(str(int(chance.random() < rate)) for rate in rates)
        spec = self.pool.spec({"points": 3, "evaluation": digits}, dataset={"version": "rows@latest"})
        (self.folder / "run.yaml").write_text(json.dumps(spec))
        done = subprocess.run(
            [str(ROOT / "docs" / "ci" / "gate.sh"), "rows.jsonl", "run.yaml", alias],
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
                "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OOLONG_URL": self.pool.plane.url,
                "OOLONG_TOKEN": self.pool.token, "GATE_TIMEOUT": "240",
                "GATE_MAPPING": "--prompt-column q --answer-column a --completion-column c", **variables,
            },
            cwd=self.folder, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        out = self.folder / "oolong-out"
        run = out / "run"
        report = xml.parse(out / "report.xml").getroot()
        return Gated(
            done.returncode, done.stdout + done.stderr,
            self.pool.client.runs.get(run.read_text().strip()) if run.exists() else None,
            (out / "dataset").read_text().strip(), int(report.get("failures", "-1")), int(report.get("errors", "-1")),
        )  # fmt: skip

    def alias(self, name: str) -> str:
        """Id of the run behind it."""
        return self.pool.client.checkpoints.resolve(name).run.id


class WideNode(Node):
    def start(self, server: str, token: str = "") -> None:
        self.agent = start_agent(
            server, self.data.root, token=token, name=self.name, slots=SLOTS, log=self.log
        )


@pytest.fixture(scope="module")
def node(pool: Pool) -> Node:  # noqa: F811
    node = WideNode(pool.folder, "wide")
    pool.nodes.append(node)
    node.start(pool.plane.url, pool.client.pool.join_token().token)
    until(lambda: pool.client.pool.get().nodes, said=pool.said)
    return node


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with quick_command(tmp_path_factory.mktemp("command")) as words:
        yield words


@pytest.fixture
def pipelines(pool: Pool, node: Node, command: str, tmp_path: Path) -> Callable[[str], Pipeline]:  # noqa: F811
    return lambda name: Pipeline(pool, tmp_path / name, command)


EASE = [0.2 + 0.7 * number / PROMPTS for number in range(PROMPTS)]
COMPARED = {"GATE_COMPARE": "eval/accuracy", "GATE_BASELINE": "alias:candidate"}


def test_the_promoted_checkpoint_was_trained_on_the_uploaded_file_and_is_not_worse(
    pipelines: Callable[[str], Pipeline],
) -> None:
    pipeline = pipelines("one")
    first = pipeline.gate("candidate", EASE, seed=2)
    assert first.code == 0 and first.run is not None, first.said
    assert first.run.dataset.id == first.dataset

    # Somebody uploads another version between the upload and the run; the change is an improvement.
    pipeline.write("rows.jsonl", 33)
    pipeline.write("other.jsonl", 34)
    better = pipeline.gate("candidate", [min(1.0, rate + 0.4) for rate in EASE], seed=3, **COMPARED)
    other = (pipeline.folder / "other.id").read_text().strip()
    assert better.code == 0 and better.run is not None, better.said
    assert better.run.dataset.id == better.dataset != other, "not what @latest meant when the run was made"
    assert "better by" in better.said and f"paired over {PROMPTS} prompts" in better.said
    assert (better.failures, better.errors) == (0, 0)
    assert pipeline.alias("candidate") == better.run.id

    # The file is reverted, so its version is an old one; the model gets worse by it.
    pipeline.write("rows.jsonl", 32)
    worse = pipeline.gate("candidate", EASE, seed=4, **COMPARED)
    assert worse.code == 6 and worse.run is not None, worse.said
    assert worse.run.dataset.id == worse.dataset == first.dataset
    assert (worse.failures, worse.errors) == (1, 0)
    assert pipeline.alias("candidate") == better.run.id, "the alias stays"

    # What was not trained on this upload is not promoted, whoever asks.
    refused = pipeline.pool.oolong(
        "checkpoint", "promote", f"{better.run.id}@latest", "candidate", "--trained-on", first.dataset
    )
    assert refused.returncode == 6 and better.run.dataset.id in refused.stderr


def test_a_null_change_passes_twenty_times_and_a_regression_does_not(
    pipelines: Callable[[str], Pipeline],
) -> None:
    """The same rates, sampled again: about half of these models measure worse than their baseline."""
    one = pipelines("baseline")
    assert one.gate("steady", EASE, seed=100).code == 0
    compared = {"GATE_COMPARE": "eval/accuracy", "GATE_BASELINE": f"run:{one.alias('steady')}"}

    def unchanged(seed: int) -> Gated:
        return pipelines(f"seed-{seed}").gate(f"null-{seed}", EASE, seed=seed, **compared)

    with ThreadPoolExecutor(SLOTS) as threads:
        found = list(threads.map(unchanged, range(101, 121)))
    for done in found:
        assert (done.code, done.failures, done.errors) == (0, 0, 0), done.said
    worse = sum("(worse by" in done.said for done in found)
    assert 4 <= worse <= 16, "each of these failed while every difference counted"
    regressed = one.gate("steady", [rate * 0.4 for rate in EASE], seed=200, **compared)
    assert (regressed.code, regressed.failures) == (6, 1), regressed.said
