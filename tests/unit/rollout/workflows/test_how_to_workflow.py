"""The file that docs/how-to/workflow.md shows: it can be uploaded, it runs, and it does what the page says."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_plane.assets.functions.function_source import read_source
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.workflows.user_workflow import UserWorkflow
from oolong.contracts.rollout import PublishedWeights, Trajectory
from oolong.contracts.run_spec import WorkflowSection
from oolong.contracts.user_code import SourceKind
from tests.support.pages import block
from tests.support.plain_workflow_process import plain_process
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness, run_spec
from tests.unit.rollout.model_files import publish, write_model, write_rows

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "workflow.md"


def shown(language: str) -> str:
    return block(PAGE, language)


def test_the_page_s_file_can_be_uploaded_and_its_spec_is_valid() -> None:
    facts = read_source(SourceKind.WORKFLOW, shown("python"))
    section = WorkflowSection.model_validate(yaml.safe_load(shown("yaml"))["workflow"])
    assert (facts.errors, facts.options) == ([], ["guesses", "discount"])
    assert set(section.options) <= set(facts.options)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(token_seconds=0.0005) as engine:
        yield engine


async def test_the_page_s_workflow_hints_and_is_worth_less_per_guess(
    engine: FakeEngine, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model")
    template = ChatTemplate(model)
    workflow = UserWorkflow(shown("python"), {"guesses": 4}, plain_process, host_capacity=1)
    spec = run_spec(
        rollout={"group_size": 1},
        staleness={"max": 0},  # the eight rows, once each
        trainer={"groups_per_step": 8},
        algorithm={"advantage": {"mean": "batch", "std": "batch"}},
    )
    engine.reply_to = halving(template)
    rows = write_rows(tmp_path / "rows.jsonl", 8)  # the answer of row n is n
    run = Harness(tmp_path / "attempt", spec, model, rows, workflow=workflow.workflow)
    version: PublishedWeights = publish(tmp_path / "weights", 0)
    async with run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(version, "none")
        groups = await run.trainer.take(0)
    await workflow.close()
    # Halving 0 to 7 says 3, then 1 or 5, then 0, 2, 4 or 6, then 7.
    retries = {3: 0, 1: 1, 5: 1, 0: 2, 2: 2, 4: 2, 6: 2, 7: 3}
    assert {group.row for group in groups} == set(retries)
    for group in groups:
        (trajectory,) = group.trajectories
        assert trajectory.reward == pytest.approx(0.9 ** retries[group.row])
        assert sum(turn.sampled for turn in trajectory.turns) == retries[group.row] + 1
        assert environment_messages(template, trajectory) == hints_on_the_way_to(group.row)


def halving(template: ChatTemplate) -> Callable[[list[int]], list[int]]:
    """A policy that plays well: it reads the hints in its context."""

    def reply(context: list[int]) -> list[int]:
        low, high = 0, 7
        for hint in re.findall(r"Higher|Lower", template.decode(context)):
            middle = (low + high) // 2
            low, high = (middle + 1, high) if hint == "Higher" else (low, middle - 1)
        return template.encode(f"I say {(low + high) // 2}")

    return reply


def hints_on_the_way_to(number: int) -> list[str]:
    low, high, hints = 0, 7, []
    while (guess := (low + high) // 2) != number:
        hints.append("Higher." if guess < number else "Lower.")
        low, high = (guess + 1, high) if guess < number else (low, guess - 1)
    return hints


def environment_messages(template: ChatTemplate, trajectory: Trajectory) -> list[Any]:
    """What the environment said, read from the tokens that are off the loss mask."""
    off = [t for t, m in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if not m]
    return re.findall(r"<\|user\|>(.*?)<\|assistant\|>", template.decode(off, skip_special_tokens=False))
