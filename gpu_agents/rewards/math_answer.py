"""1 if the completion's last boxed answer equals the row's, else 0: as text, as a rational number, or by math-verify.

The row's answer is an integer (AIME), LaTeX, or a whole solution whose last box counts (MATH). The verdict says how it
was decided: exact, symbolic, numeric (a decimal was involved), wrong; no_answer, unparseable, timeout, truncated.

Symbolic simplification can be kept busy by hostile text. What would unfold into something huge is turned away before
it is parsed; what still takes more than five seconds of processor time is no answer (timeout). Beyond that the
function runs in child processes that are killed (see `pool`), and then the completion has no score.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from types import FrameType
from typing import Any, TypeVar

from gpu_agents.model_text import last_boxed
from gpu_agents.rewards.reward import Completion, Reward, Score, ScoringError, read_options
from oolong.contracts.run_spec.reward_options import MathOptions

CPU_SECONDS = 5.0
MAX_CHARACTERS = 1000
MAX_DIGITS = 400
MAX_NESTING = 30
MAX_EXPONENT_DIGITS = 4  # of an exponent, a factorial's argument, a bound of a sum

T = TypeVar("T")
_RIGHT = frozenset({"exact", "symbolic", "numeric"})


class _OutOfTime(BaseException):
    """Not an Exception: the library catches those."""


def build(options: dict[str, Any]) -> Reward:
    extract = read_options(MathOptions, options, reward="math").extract
    from math_verify import parse, verify

    @lru_cache(maxsize=4096)
    def parsed_gold(gold: str) -> tuple[Any, ...]:
        # math-verify's own timeouts stack and use another signal; the timer around this replaces them.
        return tuple(parse(f"\\boxed{{{gold}}}", parsing_timeout=None))

    def verdict(gold: str, given: str) -> str:
        quick = decide_quickly(gold, given)
        if quick is not None:
            return quick
        wanted = list(parsed_gold(gold))
        text = given if extract == "whole" else f"\\boxed{{{given}}}"
        found = parse(text, parsing_timeout=None)
        if not found:
            return "unparseable"
        if not verify(wanted, found, timeout_seconds=None):
            return "wrong"
        return "numeric" if re.search(r"\d\.\d", gold + given) else "symbolic"

    def score(completion: Completion) -> Score:
        gold = gold_of(completion.answer)
        unfit = why_unfit(gold)
        if unfit or not in_time(lambda: bool(parsed_gold(gold)), otherwise=False):
            raise ScoringError(
                f"the answer {completion.answer!r:.200} of row {completion.row} is no mathematical expression"
                + (f": {unfit}" if unfit else "")
            )
        if completion.finish_reason != "stop":
            return Score(value=0.0, verdict="truncated")
        given = completion.text[-MAX_CHARACTERS:] if extract == "whole" else last_boxed(completion.text)
        if given is None or not given.strip():
            return Score(value=0.0, verdict="no_answer")
        if why_unfit(given):
            return Score(value=0.0, verdict="unparseable")
        word = in_time(lambda: verdict(gold, given), otherwise="timeout")
        return Score(value=float(word in _RIGHT), verdict=word)

    return score


def gold_of(answer: str) -> str:
    """The part of a row's answer that counts: its last box if it has one."""
    boxed = last_boxed(answer)
    text = answer if boxed is None else boxed
    return text.strip().strip("$").strip()


def why_unfit(text: str) -> str:
    """Why a text must not be handed to a parser that unfolds it; "" when it may."""
    if len(text) > MAX_CHARACTERS:
        return f"more than {MAX_CHARACTERS} characters"
    if sum(character.isdigit() for character in text) > MAX_DIGITS:
        return f"more than {MAX_DIGITS} digits"
    depth = deepest = 0
    for character in text:
        depth += (character in "{([") - (character in "})]")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        return f"nested more than {MAX_NESTING} deep"
    packed = re.sub(r"\s+", "", text)
    if _has_tower(packed):
        return "a tower of powers"
    if re.search(rf"(\^|\*\*)\{{?\(?-?\d{{{MAX_EXPONENT_DIGITS + 1},}}", packed):
        return f"an exponent of more than {MAX_EXPONENT_DIGITS} digits"
    if re.search(rf"\d{{{MAX_EXPONENT_DIGITS + 1},}}[)}}]*!|!!|[)}}]!", packed):
        return "a factorial of something large"
    if "\\int" in packed:
        return "an integral, which is not evaluated"
    if re.search(rf"\\(sum|prod|binom|dbinom|tbinom)\b.*\d{{{MAX_EXPONENT_DIGITS + 1},}}", packed):
        return "a sum, product or binomial over something large"
    return ""


def _has_tower(packed: str) -> bool:
    """Whether a power's exponent holds a power: 2^{3^{4}}, 2^3^4, 2**3**4."""
    text = packed.replace("**", "^")
    if re.search(r"\^[^\^{}()+\-*/=,]{1,20}\^", text):
        return True
    for match in re.finditer(r"\^([{(])", text):
        depth = 0
        for place in range(match.start(1), len(text)):
            depth += (text[place] in "{(") - (text[place] in "})")
            if text[place] == "^" and depth > 0:
                return True
            if depth == 0:
                break
    return False


def decide_quickly(gold: str, given: str) -> str | None:
    """exact or wrong where two texts or two plain numbers settle it; None where algebra must."""
    a, b = normalised(gold), normalised(given)
    if a == b:
        return "exact"
    x, y = plain_number(a), plain_number(b)
    if x is not None and y is not None:
        return "exact" if x == y else "wrong" if "." not in a + b else None
    return None


def normalised(text: str) -> str:
    """Without what has no meaning: spaces, dollars, display styles, a full stop at the end."""
    text = text.strip().strip("$").strip()
    for word in ("\\left", "\\right", "\\displaystyle", "\\!", "\\,", "\\;", "\\ ", "~"):
        text = text.replace(word, "")
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"(?<=\d)\{,\}(?=\d)", "", text)
    text = re.sub(r"\s+", "", text)
    return text.removesuffix(".")


def plain_number(text: str) -> Fraction | None:
    """Of an integer, a decimal, a/b or \\frac{a}{b} of integers; thousands may have commas."""
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-").removeprefix("+")
    fraction = re.fullmatch(r"\\frac\{(-?\d+)\}\{(-?\d+)\}|\\frac(\d)(\d)|(\d+)/(\d+)", text)
    if fraction:
        top, bottom = (int(group) for group in fraction.groups() if group is not None)
        return sign * Fraction(top, bottom) if bottom else None
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return sign * Fraction(text)
    return None


def in_time(decide: Callable[[], T], *, otherwise: T) -> T:
    """The decision, or `otherwise` when it takes more than CPU_SECONDS of processor time. Main thread only."""
    try:
        with _timer():
            return decide()
    except _OutOfTime:
        return otherwise


@contextmanager
def _timer() -> Iterator[None]:
    def over(_number: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
