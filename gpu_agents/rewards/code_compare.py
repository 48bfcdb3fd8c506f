"""Compare a program's output with the expected output (pure, outside the sandbox)."""

from __future__ import annotations

import json
import math

RELATIVE, ABSOLUTE = 1e-6, 1e-9
NUMBER_CHARACTERS = 400  # longer words are not numbers


def same_output(printed: str, expected: str) -> bool:
    """Compare lines, ignoring trailing white space and empty lines; fractions match within 1e-6."""
    given, wanted = _lines(printed), _lines(expected)
    if given == wanted:
        return True
    if len(given) != len(wanted):
        return False
    return all(_same_line(a, b) for a, b in zip(given, wanted, strict=True))


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_line(given: str, wanted: str) -> bool:
    words, wanted_words = given.split(), wanted.split()
    return len(words) == len(wanted_words) and all(
        a == b or _near(a, b) for a, b in zip(words, wanted_words, strict=True)
    )


def _near(given: str, wanted: str) -> bool:
    """Compare fractions approximately. Integers must match exactly."""
    if not any(mark in wanted for mark in ".eE") or len(given) > NUMBER_CHARACTERS:
        return False
    try:
        a, b = float(given), float(wanted)
    except ValueError:
        return False
    return math.isfinite(a) and math.isfinite(b) and math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def same_value(reported: bytes | None, expected: object) -> bool:
    """Compare JSON values and their types: true is not 1, "1" is not 1. Floats match within 1e-6."""
    if reported is None:
        return False
    try:
        return _same(json.loads(reported), expected)
    except (ValueError, RecursionError, OverflowError):  # OverflowError: an integer too large for a float
        return False


def _same(given: object, wanted: object) -> bool:
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, (int, float)) and isinstance(wanted, (int, float)):
        if isinstance(given, int) and isinstance(wanted, int):
            return given == wanted
        return math.isclose(given, wanted, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(_same(a, b) for a, b in zip(given, wanted, strict=True))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return given.keys() == wanted.keys() and all(_same(given[key], wanted[key]) for key in wanted)
    return type(given) is type(wanted) and given == wanted
