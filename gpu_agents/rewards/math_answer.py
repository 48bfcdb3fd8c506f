"""Score 1 if the completion's last boxed answer equals the row's, else 0: as text, as a number, or by math-verify.

The row's answer is an integer (AIME), LaTeX, or a solution whose last box counts (MATH). Results: exact, symbolic,
numeric (with decimals), wrong, no_answer, unparseable, timeout, truncated.

Hostile text can make symbolic simplification run for a very long time. Text that would expand to something huge is
rejected before parsing, and parsing stops after five seconds of CPU time (timeout). As a last resort the function's
child process is killed (see `pool`), and the completion has no score.
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
    """A BaseException, because the library catches Exception."""


def build(options: dict[str, Any]) -> Reward:
    extract = read_options(MathOptions, options, reward="math").extract
    from math_verify import parse, verify

    @lru_cache(maxsize=4096)
    def parsed_gold(gold: str) -> tuple[Any, ...]:
        # The caller's timer replaces math-verify's own timeouts, which use another signal.
        return tuple(parse(f"\\boxed{{{gold}}}", parsing_timeout=None))

    def compare(gold: str, given: str) -> str:
        quick = compare_quickly(gold, given)
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
        problem = rejection_reason(gold)
        if problem or not in_time(lambda: bool(parsed_gold(gold)), otherwise=False):
            raise ScoringError(
                f"the answer {completion.answer!r:.200} of row {completion.row} is not a mathematical expression"
                + (f": {problem}" if problem else "")
            )
        if completion.finish_reason != "stop":
            return Score(value=0.0, result="truncated")
        given = completion.text[-MAX_CHARACTERS:] if extract == "whole" else last_boxed(completion.text)
        if given is None or not given.strip():
            return Score(value=0.0, result="no_answer")
        if rejection_reason(given):
            return Score(value=0.0, result="unparseable")
        word = in_time(lambda: compare(gold, given), otherwise="timeout")
        return Score(value=float(word in _RIGHT), result=word)

    return score


def gold_of(answer: str) -> str:
    """The last box of a row's answer, or the whole answer."""
    boxed = last_boxed(answer)
    text = answer if boxed is None else boxed
    return text.strip().strip("$").strip()


def rejection_reason(text: str) -> str:
    """Return why a text must not be parsed symbolically, or ""."""
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


def compare_quickly(gold: str, given: str) -> str | None:
    """Compare as text and as plain numbers; None if algebra is needed."""
    a, b = normalized(gold), normalized(given)
    if a == b:
        return "exact"
    x, y = plain_number(a), plain_number(b)
    if x is not None and y is not None:
        return "exact" if x == y else "wrong" if "." not in a + b else None
    return None


def normalized(text: str) -> str:
    """Remove spaces, dollars, display styles and a final period."""
    text = text.strip().strip("$").strip()
    for word in ("\\left", "\\right", "\\displaystyle", "\\!", "\\,", "\\;", "\\ ", "~"):
        text = text.replace(word, "")
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"(?<=\d)\{,\}(?=\d)", "", text)
    text = re.sub(r"\s+", "", text)
    return text.removesuffix(".")


def plain_number(text: str) -> Fraction | None:
    """Parse an integer, a decimal, a/b or \\frac{a}{b}; thousands may have commas."""
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
    """Call `decide`; return `otherwise` after CPU_SECONDS of CPU time. Main thread only."""
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
