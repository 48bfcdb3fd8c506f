"""exact_match and its extraction rules."""

from __future__ import annotations

import pytest

from gpu_agents.rewards.registry import build_reward
from gpu_agents.rewards.reward import Completion, InvalidOptions


def score(text: str, answer: str = "21", finish: str = "stop", **options: object) -> float:
    reward = build_reward("exact_match", dict(options))
    return reward(Completion(prompt="", text=text, answer=answer, finish_reason=finish))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r"a5=5 b7=12 c9=21 \boxed{21}", 1.0),
        (r"a5=5 b7=12 c9=21 \boxed{ 21 }" + "\n", 1.0),
        (
            r"\boxed{21}}}}}}}}}",
            0.0,
        ),  # right, but printed on to the length limit: the hack that this rule ends
        (r"\boxed{21} and more", 0.0),
        (r"\boxed{20} \boxed{21}", 1.0),
        (r"\boxed{21} \boxed{20}", 0.0),
        ("21", 0.0),
        ("", 0.0),
    ],
)
def test_boxed_at_end_wants_the_box_to_be_the_end(text: str, wanted: float) -> None:
    assert score(text) == wanted


def test_a_completion_cut_off_at_the_limit_scores_nothing() -> None:
    assert score(r"\boxed{21}", finish="length") == 0.0


def test_regex_takes_the_last_match_and_its_first_group() -> None:
    assert score("Answer: 20\nAnswer: 21", extract="regex", pattern=r"Answer: (\d+)") == 1.0
    assert score("no answer", extract="regex", pattern=r"Answer: (\d+)") == 0.0


def test_whole_compares_the_whole_text_without_outer_space() -> None:
    assert score(" Twenty One\n", answer="twenty one", extract="whole", ignore_case=True) == 1.0
    assert score("twenty one!", answer="twenty one", extract="whole") == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {"extract": "boxed"},
        {"extract": "regex"},
        {"extract": "regex", "pattern": "("},
        {"extract": "whole", "pattern": "x"},
        {"patern": "x"},
    ],
)
def test_wrong_options_are_refused_at_the_start(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptions):
        build_reward("exact_match", options)


@pytest.mark.parametrize(
    ("name", "options"), [("source", {}), ("exact_match", {"source": "def f(): ..."}), ("x", {})]
)
def test_code_of_users_and_unknown_names_are_not_supported_yet(name: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptions) as refused:
        build_reward(name, options)
    assert refused.value.code == "not_supported_yet"
