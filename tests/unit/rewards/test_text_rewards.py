"""format, length and composites of text rewards."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_agents.rewards.composite import Composite, Part
from gpu_agents.rewards.pool import ChildPool
from gpu_agents.rewards.registry import ScorerContext, build_reward, build_scorer
from gpu_agents.rewards.reward import Completion, InvalidOptions, Score, ScoringError
from gpu_agents.rewards.sandboxes import Sandboxes
from gpu_agents.rewards.service import InThisProcess
from tests.support import failing_reward


def of(text: str, answer: str = "4") -> Completion:
    return Completion(prompt="", text=text, answer=answer, finish_reason="stop")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<think>a</think><answer>4</answer>", 1.0),
        (" <think>a</think>\n<answer>4</answer>\n", 1.0),
        ("<answer>4</answer><think>a</think>", 0.0),
        ("<think>a</think><answer>4</answer> and more", 0.0),
        ("<think>a</think><think>b</think><answer>4</answer>", 0.0),
        ("<think>a<answer>4</answer></think>", 0.0),
        ("<think>a</think>", 0.0),
        ("<think>a<think></think><answer>4</answer>", 0.0),
        ("first <think>a</think><answer>4</answer>", 0.0),
        ("<think>a</think> so <answer>4</answer>", 0.0),
    ],
)
def test_format_wants_each_tag_once_and_in_order(text: str, wanted: float) -> None:
    assert build_reward("format", {"tags": ["think", "answer"]})(of(text)) == wanted


def test_format_by_pattern_is_about_the_whole_text() -> None:
    score = build_reward("format", {"pattern": r"Answer: \d+"})
    assert score(of("Answer: 4\n")) == 1.0
    assert score(of("The Answer: 4")) == 0.0


def test_length_falls_in_a_straight_line() -> None:
    score = build_reward("length", {"full_until": 10, "zero_from": 20})
    assert [score(of("x" * n)) for n in (0, 10, 15, 20, 99)] == [1.0, 1.0, 0.5, 0.0, 0.0]
    words = build_reward("length", {"full_until": 1, "zero_from": 3, "unit": "words"})
    assert words(of("two words")) == 0.5


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("format", {}),
        ("format", {"tags": ["a"], "pattern": "a"}),
        ("format", {"tags": "think"}),
        ("format", {"pattern": "("}),
        ("length", {"full_until": 5}),
        ("length", {"full_until": 5, "zero_from": 5}),
        ("length", {"full_until": 1, "zero_from": 2, "unit": "tokens"}),
        ("composite", {}),
        ("composite", {"parts": [{"weight": 1}]}),
        ("composite", {"parts": [{"name": "exact_match", "wieght": 1}]}),
        ("composite", {"parts": [{"name": "composite", "options": {"parts": []}}]}),
        ("composite", {"parts": [{"name": "nothing"}]}),
        ("code", {"score": "some"}),
        ("code", {"timeout_seconds": 0}),
    ],
)
def test_wrong_options_are_refused_at_the_start(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        build_scorer(name, options, ScorerContext(sandboxes=Sandboxes(slots=1)))


COMPOSITE = {
    "parts": [
        {"name": "exact_match", "weight": 2.0},
        {"name": "length", "weight": -0.5, "options": {"full_until": 1, "zero_from": 101}},
        {"name": "length", "weight": 0.0, "options": {"full_until": 10, "zero_from": 20}},
    ]
}


async def test_a_composite_is_the_weighted_sum_and_keeps_its_parts() -> None:
    scorer = build_scorer("composite", COMPOSITE, ScorerContext(sandboxes=Sandboxes(slots=1)))
    score = await scorer.score(of(r"so \boxed{4}"))
    assert score.parts == {"exact_match": 1.0, "length": 0.89, "length-2": 0.8}
    assert score.value == pytest.approx(2.0 - 0.5 * 0.89)


class Whole:
    """A scorer with all that a score can say."""

    async def start(self) -> None: ...

    async def score(self, completion: Completion) -> Score:
        return Score(value=1.0, parts={"brief": 0.5}, result="exact", forgeable=True)

    async def close(self) -> None: ...


async def test_a_composite_passes_on_what_its_parts_say() -> None:
    plain = build_scorer("exact_match", {}, ScorerContext(sandboxes=Sandboxes(slots=1)))
    score = await Composite([Part("a", 1.0, Whole()), Part("b", 1.0, plain)]).score(of(""))
    assert score == Score(
        value=1.0, parts={"a": 1.0, "a/brief": 0.5, "b": 0.0}, result="a:exact", forgeable=True
    )


async def test_a_composite_with_a_part_that_has_no_score_has_none() -> None:
    parts = [build_reward("exact_match", {}), failing_reward.build({})]
    scorer = Composite([Part(f"part-{n}", 1.0, InThisProcess(part)) for n, part in enumerate(parts)])
    with pytest.raises(ScoringError, match="row 3"):
        await scorer.score(Completion(prompt="", text="", answer="", finish_reason="stop", row=3))


def test_what_a_text_can_keep_busy_runs_where_it_can_be_killed() -> None:
    place = ScorerContext(sandboxes=Sandboxes(slots=1))
    assert isinstance(build_scorer("math", {}, place), ChildPool)
    pattern = {"extract": "regex", "pattern": "(a+)+$"}
    assert isinstance(build_scorer("exact_match", pattern, place), ChildPool)
    assert not isinstance(build_scorer("exact_match", {}, place), ChildPool)
    assert isinstance(build_scorer("composite", COMPOSITE, place), Composite)
