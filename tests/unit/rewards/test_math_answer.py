"""The math reward: a frozen table of pairs, rows as AIME and MATH have them, and texts that would keep it busy."""

from __future__ import annotations

import time

import pytest

from gpu_agents.model_text import last_boxed
from gpu_agents.rewards import math_answer
from gpu_agents.rewards.math_answer import gold_of, in_time, rejection_reason
from gpu_agents.rewards.registry import build_reward
from gpu_agents.rewards.reward import Completion, InvalidOptions, Reward, Score, ScoringError

RIGHT = ("exact", "symbolic", "numeric")

# The row's answer, what the completion boxes, the result. Frozen with the pinned math-verify: a change of a line is
# another reward and says so here. Lenient beyond doubt: units are ignored, 50 is 50 %. Strict beyond doubt:
# e^{i pi}, degrees against radians, another base, a rounded fraction, pi to five places.
PAIRS = [
    (r"204", r"204", "exact"),
    (r"073", r"73", "exact"),
    (r"1,000", r"1000", "exact"),
    (r"-7", r"-7", "exact"),
    (r"7", r"-7", "wrong"),
    (r"204", r"205", "wrong"),
    (r"\frac{1}{2}", r"1/2", "exact"),
    (r"\frac{1}{2}", r"\dfrac{1}{2}", "exact"),
    (r"\frac12", r"0.5", "exact"),
    (r"0.5", r".5", "numeric"),
    (r"\frac{4}{3}", r"1.333", "wrong"),
    (r"0.333", r"\frac{1}{3}", "wrong"),
    (r"3.14159", r"\pi", "wrong"),
    (r"\sqrt{12}", r"2\sqrt{3}", "symbolic"),
    (r"2\sqrt{3}", r"\sqrt{3}\cdot 2", "symbolic"),
    (r"\sqrt{2}", r"1.41421356", "numeric"),
    (r"x+1", r"1+x", "symbolic"),
    (r"(x+1)^2", r"x^2+2x+1", "symbolic"),
    (r"(x+1)^2", r"x^2+2x+2", "wrong"),
    (r"x^2-1", r"(x-1)(x+1)", "symbolic"),
    (r"\frac{x^2-1}{x-1}", r"x+1", "symbolic"),
    (r"2x+3", r"3+x\cdot 2", "symbolic"),
    (r"e^{i\pi}", r"-1", "wrong"),
    (r"\sin^2 x+\cos^2 x", r"1", "symbolic"),
    (r"\log_2 8", r"3", "symbolic"),
    (r"\ln e^2", r"2", "symbolic"),
    (r"5!", r"120", "symbolic"),
    (r"\binom{5}{2}", r"10", "symbolic"),
    (r"\{1,2\}", r"\{2,1\}", "symbolic"),
    (r"\{1,2\}", r"\{1,2,3\}", "wrong"),
    (r"(1,2)", r"(1, 2)", "exact"),
    (r"(1,2)", r"(2,1)", "wrong"),
    (r"[0,1)", r"[0,1)", "exact"),
    (r"[0,1)", r"[0,1]", "wrong"),
    (r"(-\infty,2]", r"(-\infty, 2]", "exact"),
    (r"x=5", r"5", "symbolic"),
    (r"5", r"x=5", "symbolic"),
    (r"y=2x+1", r"y=1+2x", "symbolic"),
    (r"x>3", r"x > 3", "exact"),
    (r"\text{A}", r"A", "symbolic"),
    (r"\text{(B)}", r"B", "symbolic"),
    (r"50\%", r"50", "symbolic"),
    (r"50\%", r"0.5", "numeric"),
    (r"90^\circ", r"90", "symbolic"),
    (r"5\text{ cm}", r"5", "symbolic"),
    (r"5\text{ cm}", r"5\text{ m}", "symbolic"),
    (r"\$18", r"18", "symbolic"),
    (r"12\sqrt{5}+3", r"3+12\sqrt5", "symbolic"),
    (r"\frac{\pi}{6}", r"30^\circ", "wrong"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "exact"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}", "wrong"),
    (r"1+2i", r"2i+1", "symbolic"),
    (r"1+2i", r"1-2i", "wrong"),
    (r"2^{10}", r"1024", "symbolic"),
    (r"10^{-3}", r"0.001", "numeric"),
    (r"1.5\times 10^3", r"1500", "numeric"),
    (r"\frac{a}{b}", r"a/b", "symbolic"),
    (r"|x|", r"\sqrt{x^2}", "symbolic"),
    (r"3\frac{1}{2}", r"3.5", "numeric"),
    (r"\infty", r"\infty", "exact"),
    (r"2,3", r"3,2", "symbolic"),
    (r"17_8", r"15", "wrong"),
    (r"9", r"9^{9^{9^9}}", "unparseable"),
    (r"1", r"10^{10^9}", "unparseable"),
    (r"1", r"(10^9)!", "unparseable"),
    (r"1", r"100000000!", "unparseable"),
    (r"3", r"\sum_{k=1}^{1000000000000} k", "unparseable"),
    (r"1", r"7^{7^{7^7}} \bmod 1000", "unparseable"),
    (r"1", r"2**3**4**5", "unparseable"),
    (r"1", r"\binom{100000000}{50000000}", "unparseable"),
    (r"1", r"\int_0^1 \frac{\sin(x^x)}{\ln(1+x^x)} dx", "unparseable"),
    (r"1", r"\int x^x e^{x^2} \tan(x) dx", "unparseable"),
    (r"2", r"", "no_answer"),
]


@pytest.fixture(scope="module")
def reward() -> Reward:
    return build_reward("math", {})


def grade(reward: Reward, text: str, answer: str, finish: str = "stop") -> Score:
    score = reward(Completion(prompt="", text=text, answer=answer, finish_reason=finish, row=7))
    assert isinstance(score, Score)
    return score


@pytest.mark.parametrize(("answer", "given", "result"), PAIRS)
def test_the_frozen_table(reward: Reward, answer: str, given: str, result: str) -> None:
    score = grade(reward, f"so it is $\\boxed{{{given}}}$.", answer)
    assert (score.result, score.value) == (result, float(result in RIGHT))


def test_the_table_is_long_enough() -> None:
    assert len(PAIRS) >= 60


@pytest.mark.parametrize(
    ("answer", "text", "result"),
    [
        ("204", r"Adding up, we get $\boxed{204}$.", "exact"),  # AIME: an integer from 0 to 999
        ("025", r"\boxed{25}", "exact"),
        ("025", r"\boxed{25}\text{ or }\boxed{26}", "wrong"),  # the last box counts
        (r"We have $x=2$ and so $\boxed{\frac{1}{2}}$.", r"\boxed{0.5}", "exact"),  # MATH: a solution
        (r"$\boxed{\left( 3, \frac{\pi}{2} \right)}$", r"$\boxed{(3,\frac{\pi}{2})}$", "exact"),
        (r"Thus \boxed{\text{Evelyn}}.", r"\boxed{\text{Evelyn}}", "exact"),
        ("4", "I do not know", "no_answer"),
        ("4", "the answer is 4", "no_answer"),
        ("4", r"\boxed{", "no_answer"),
    ],
)
def test_rows_as_the_benchmarks_have_them(reward: Reward, answer: str, text: str, result: str) -> None:
    assert grade(reward, text, answer).result == result


def test_a_completion_cut_off_at_the_limit_scores_nothing(reward: Reward) -> None:
    assert grade(reward, r"\boxed{4}", "4", finish="length") == Score(value=0.0, result="truncated")


@pytest.mark.parametrize("answer", ["", "   ", r"\boxed{}", "9^{9^{9}}"])
def test_an_answer_that_is_no_expression_is_an_error_and_not_0(reward: Reward, answer: str) -> None:
    with pytest.raises(ScoringError, match="row 7"):
        grade(reward, r"\boxed{3}", answer)


@pytest.mark.parametrize(
    "text",
    ["9^{9^{9^9}}", "2^3^4", "2**3**4", "10^{100000}", "(10^9)!", "99999!", "5!!!", "{" * 40 + "1" + "}" * 40,
     "1" * 500, "x" * 2000, r"\binom{9999999}{3}", r"\sum_{k=1}^{100000} k", r"\int_0^1 x dx"],
)  # fmt: skip
def test_what_would_unfold_is_turned_away_before_it_is_parsed(text: str) -> None:
    assert rejection_reason(text)


@pytest.mark.parametrize(
    "text", ["2^{10}", "x^2+y^2", "5!", r"\binom{10}{3}", "10^{-3}", "e^{2x}", "a^{b+c}"]
)
def test_ordinary_answers_are_not_turned_away(text: str) -> None:
    assert rejection_reason(text) == ""


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"\boxed{a{b}c} then \boxed{d}", "d"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} \boxed{2", "1"),
        (r"\fbox{3}", "3"),
        ("none", None),
    ],
)
def test_the_last_whole_box(text: str, boxed: str | None) -> None:
    assert last_boxed(text) == boxed
    assert gold_of("$ 5 $") == "5"


def test_a_text_of_boxes_that_are_never_closed_is_read_in_one_pass() -> None:
    began = time.process_time()
    assert last_boxed(r"\boxed{1} " + r"\boxed{" * 20_000) == "1"
    assert time.process_time() - began < 2


def test_too_much_processor_time_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_answer, "CPU_SECONDS", 0.05)

    def busy() -> str:
        while True:
            try:
                sum(range(1000))
            except Exception:  # noqa: BLE001 - as the library has them
                pass

    began = time.process_time()
    assert in_time(busy, otherwise="timeout") == "timeout"
    assert time.process_time() - began < 2
    assert in_time(lambda: "exact", otherwise="timeout") == "exact"


def test_an_answer_that_keeps_the_verifier_busy_is_no_answer(
    reward: Reward, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grade(reward, r"\boxed{4}", "4").result == "exact"  # the row's answer is parsed from here on

    def busy(gold: str, given: str) -> str:
        while True:
            sum(range(1000))

    monkeypatch.setattr(math_answer, "CPU_SECONDS", 0.05)
    monkeypatch.setattr(math_answer, "compare_quickly", busy)
    assert grade(reward, r"\boxed{4}", "4") == Score(value=0.0, result="timeout")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidOptions):
        build_reward("math", {"extract": "first"})
