"""docs/how-to/dataset.md, done as it says: its script, its mapping, its run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_agents.rewards import exact_match
from gpu_agents.rewards.reward import Completion
from oolong.contracts.run_spec import RunSpec
from tests.support.pages import block, blocks

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "dataset.md"


def commands(name: str) -> str:
    """The shell block in which `oolong dataset NAME` is typed."""
    [found] = [one.text for one in blocks(PAGE.read_text()) if f"oolong dataset {name} " in one.text]
    return found


def mapping_of(command: str) -> dict[str, str]:
    """The options of `oolong dataset …` that make up the mapping."""
    words = shlex.split(command.replace("\\\n", " "))
    options = dict(zip(words[4::2], words[5::2], strict=True))
    options.pop("--name", None)
    return {name.removeprefix("--").replace("-", "_"): value for name, value in options.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "make_change.py").write_text(block(PAGE, "python", "make_change.py"))
    subprocess.run([sys.executable, "make_change.py"], cwd=folder, check=True, timeout=60)
    return folder / "change.jsonl"


@pytest.fixture
def alice(person: Any, clock: Any) -> Any:
    """Here she has nothing yet."""
    return person("alice")


def test_the_file_is_uploaded_with_the_mapping_of_the_page_and_rendered_as_it_says(
    alice: Any, made: Path
) -> None:
    preview, upload = (part for part in re.split(r"(?=^oolong)", commands("upload"), flags=re.M) if part)
    mapping = mapping_of(upload)
    assert mapping == mapping_of(preview)
    dataset = alice.post("/datasets", {"name": "change"}).json()["id"]
    reply = alice.version(dataset, alice.upload(made.read_bytes()), mapping)
    assert reply.status_code == 201, reply.json()
    version = reply.json()
    assert (version["rows"], version["splits"]) == (1100, {"sft": 400, "train": 600, "eval": 100})
    first = json.loads(made.read_text().splitlines()[0])
    rows = alice.get(f"/dataset-versions/{version['id']}/rows?limit=1").json()["data"]
    expected = f"{first['question']} How many cents of change? End with \\boxed{{the number}}."
    assert rows[0]["messages"] == [{"role": "user", "content": expected}]
    assert rows[0]["answer"] == str(first["change"])


def test_the_run_of_the_page_is_a_valid_spec_and_its_reward_pays_for_the_worked_solutions(made: Path) -> None:
    spec = RunSpec.model_validate(yaml.safe_load(block(PAGE, "yaml")))
    score = exact_match.build(spec.reward.options)
    rows = [json.loads(line) for line in made.read_text().splitlines()]
    for row in rows:
        completion = Completion(
            prompt="", text=row["worked"], answer=str(row["change"]), finish_reason="stop"
        )
        assert score(completion) == 1.0
    assert max(len(row["worked"]) for row in rows) < spec.rollout.max_new_tokens


def test_no_question_is_in_two_splits(made: Path) -> None:
    questions = [json.loads(line)["question"] for line in made.read_text().splitlines()]
    assert len(questions) == len(set(questions))
