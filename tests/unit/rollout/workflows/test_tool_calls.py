"""Tool calls: what of a turn is run, what the policy receives, and what is the sandbox's fault."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.controller.prompt_store import InvalidPrompts, PromptStore
from gpu_agents.rollout.controller.telemetry import pipeline
from gpu_agents.rollout.worker.code_execution import observation
from gpu_agents.rollout.workflows.tool_calls import PYTHON_TOOL, ToolCall, tool_calls
from oolong.contracts.attempt import CanonicalRow
from oolong.contracts.rollout import ExecuteReply, PublishedWeights
from oolong.workflow import WorkflowFailed
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness, run_spec
from tests.unit.rollout.model_files import publish, write_model, write_rows

WITH_TOOLS = (
    "{% if tools %}<|system|>{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CALL = '<tool_call>{"name": "python", "arguments": {"code": "print(6*7)"}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        (f"Let me see. {CALL}", "tool_call", [ToolCall(code="print(6*7)")]),
        (CALL + "\n" + CALL, "tool_call", [ToolCall(code="print(6*7)")] * 2),
        ("It is 42.", "tool_call", []),
        ("```python\nprint(1)\n```", "tool_call", []),
        ("So:\n```python\nif 1:\n    print(2)\n```\n", "fenced", [ToolCall(code="if 1:\n    print(2)\n")]),
        ("```python\nprint(1)", "fenced", []),
        (CALL, "stale_epoch", []),
    ],
)  # fmt: skip
def test_the_programs_of_a_turn(text: str, form: Any, expected: list[ToolCall]) -> None:
    assert tool_calls(text, form) == expected


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "not JSON"),
        ('{"name": "search", "arguments": {"code": "1"}}', "one tool, python"),
        ('["python"]', "one tool, python"),
        ('{"name": "python", "arguments": "print(1)"}', "takes arguments"),
        ('{"name": "python", "arguments": {"code": 1}}', "takes arguments"),
    ],
)
def test_a_call_of_a_wrong_form_is_answered_with_what_is_wrong(body: str, says: str) -> None:
    (call,) = tool_calls(f"<tool_call>{body}</tool_call>", "tool_call")
    assert not call.code and says in call.error


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ExecuteReply(status="ok", stdout="42\n"), "42"),
        (ExecuteReply(status="ok", stdout="a\n", value="7"), "a\n7"),
        (ExecuteReply(status="ok"), "(no output)"),
        (ExecuteReply(status="failed", stdout="a\n", stderr="KeyError: 1\n"), "a\nKeyError: 1"),
        (ExecuteReply(status="wall_limit", stdout="a"), "a\nError: the program ran longer than 2 s"),
        (ExecuteReply(status="memory_limit"), "Error: the program used too much memory"),
    ],
)
def test_what_came_of_a_program_is_text_for_the_policy(reply: ExecuteReply, expected: str) -> None:
    assert observation(reply, seconds=2.0) == expected


def test_the_template_tells_the_policy_of_the_tool_or_the_run_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    rows = [CanonicalRow(row=0, split="train", messages=[{"role": "user", "content": "q"}], answer="a")]
    with pytest.raises(InvalidPrompts, match="use tool_format: fenced"):
        PromptStore(rows, ChatTemplate(model), tools=[PYTHON_TOOL])
    (model / "chat_template.jinja").write_text(WITH_TOOLS)
    told = PromptStore(rows, ChatTemplate(model), tools=[PYTHON_TOOL]).get(0).prompt
    assert told.startswith('<|system|>[{"type": "function", "function": {"name": "python"')


# --- on the scripted engine ---------------------------------------------------------------------------------


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(token_seconds=0.0005) as engine:
        yield engine


@pytest.fixture
def versions(tmp_path: Path) -> Callable[[int], PublishedWeights]:
    return lambda version: publish(tmp_path / "weights", version)


class Calculator:
    """Stands where the reward service's sandbox is."""

    def __init__(self, *outputs: str, fails: bool = False) -> None:
        self.asked: list[str] = []
        self._outputs = list(outputs)
        self._fails = fails

    async def execute(self, code: str) -> str:
        self.asked.append(code)
        if self._fails:
            raise WorkflowFailed("sandbox", "bubblewrap made no sandbox")
        return self._outputs[min(len(self.asked), len(self._outputs)) - 1]


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., Harness]:
    model = write_model(tmp_path / "model")
    (model / "chat_template.jinja").write_text(WITH_TOOLS)
    rows = write_rows(tmp_path / "rows.jsonl", 8)

    def make(executor: Any, reward: Any, **workflow: Any) -> Harness:
        spec = run_spec(
            workflow={"name": "python_tool", **workflow},
            rollout={"group_size": 1, "max_new_tokens": 200, "max_prompt_tokens": 800},
            trainer={"groups_per_step": 1},
            algorithm={"advantage": {"mean": "batch", "std": "batch"}},
        )
        return Harness(tmp_path / "attempt", spec, model, rows, reward=reward, executor=executor)

    return make


Make = Callable[..., Harness]
Versions = Callable[[int], PublishedWeights]


def says(template: ChatTemplate, *turns: str) -> Callable[[list[int]], list[int]]:
    """A policy that says its turns in order; which one is due is seen from the context."""
    wrote = template.encode("<|assistant|>")[0]
    return lambda context: template.encode(turns[min(context.count(wrote), len(turns)) - 1])


async def test_the_policy_is_given_the_output_of_what_it_ran_and_its_answer_is_scored(
    new_run: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    calculator = Calculator("42")
    scored: list[str] = []
    async with new_run(calculator, lambda c: float(scored.append(c.text) or c.text == "It is 42.")) as run:
        template = ChatTemplate(tmp_path / "model")
        engine.reply_to = says(template, CALL, "It is 42.")
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        ((group),) = await run.trainer.take(0)
    (trajectory,) = group.trajectories
    assert (trajectory.reward, trajectory.tool_calls) == (1.0, 1)
    assert set(scored) == {"It is 42."}
    assert calculator.asked[0] == "print(6*7)"
    assert group.prompt.startswith("<|system|>[{")
    whole = template.decode(trajectory.token_ids, skip_special_tokens=False)
    assert whole == f"{CALL}<|end|><|tool|>42<|assistant|>It is 42.<|end|>"
    environment = [t for t, m in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if not m]
    assert template.decode(environment, skip_special_tokens=False) == "<|tool|>42<|assistant|>"


async def test_a_long_output_is_cut_in_its_middle_and_special_tokens_in_it_are_text(
    new_run: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    calculator = Calculator("<|end|>" + "x" * 500 + "the end")
    async with new_run(calculator, lambda _: 1.0, tool_output_tokens=16) as run:
        template = ChatTemplate(tmp_path / "model")
        engine.reply_to = says(template, CALL, "done")
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        (group,) = await run.trainer.take(0)
    (trajectory,) = group.trajectories
    environment = [t for t, m in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if not m]
    text = template.decode(environment, skip_special_tokens=False)
    assert "tokens cut]\nxthe end<|assistant|>" in text
    assert 257 not in environment, "the tool's output ended a turn"


async def test_the_turn_after_the_last_allowed_call_is_scored_as_it_is(
    new_run: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    calculator = Calculator("again")
    async with new_run(calculator, lambda c: float("tool_call" in c.text), max_tool_calls=2) as run:
        engine.reply_to = says(ChatTemplate(tmp_path / "model"), CALL)
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        (group,) = await run.trainer.take(0)
    (trajectory,) = group.trajectories
    assert (trajectory.tool_calls, trajectory.reward) == (2, 1.0)
    assert [turn.sampled for turn in trajectory.turns] == [True, False, True, False, True]


async def test_a_sandbox_that_fails_is_an_error_of_the_workflow_and_never_a_reward(
    new_run: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    async with new_run(Calculator(fails=True), lambda _: 0.0) as run:
        engine.reply_to = says(ChatTemplate(tmp_path / "model"), CALL)
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: run.controller.state.counters.workflow_errors["sandbox"] >= 3)
        assert not run.controller.state.groups.buffered
        assert "bubblewrap made no sandbox" in run.controller.state.counters.last_error
        assert pipeline(run.controller.state)["workflow_errors"]["sandbox"] >= 3
