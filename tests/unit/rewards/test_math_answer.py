"""The math reward."""

from __future__ import annotations

import pytest

from gpu_agents.rewards.reward import Completion, NoScore
from gpu_agents.rewards.table import build_reward


@pytest.mark.parametrize(
    ("text", "answer", "wanted"),
    [
        (r"so it is $\boxed{\frac{1}{2}}$", "0.5", 1.0),
        (r"the answer is \boxed{x + 1}", "1+x", 1.0),
        (r"\boxed{3}", "4", 0.0),
        ("I do not know", "4", 0.0),
    ],
)
def test_equal_expressions_score_1(text: str, answer: str, wanted: float) -> None:
    reward = build_reward("math", {})
    assert reward(Completion(prompt="", text=text, answer=answer, finish_reason="stop")) == wanted


def test_an_answer_that_is_no_expression_is_an_error_and_not_0() -> None:
    reward = build_reward("math", {})
    with pytest.raises(NoScore, match="row 7"):
        reward(Completion(prompt="", text=r"\boxed{3}", answer="", finish_reason="stop", row=7))
