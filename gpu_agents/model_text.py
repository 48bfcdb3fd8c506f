"""Find blocks in text that the policy wrote (pure).

The policy, or whoever wrote its training data, chooses this text, so each function makes one linear pass over it: no
regular expression that can backtrack, no search that starts over. A text longer than `MAX_CHARACTERS` holds no blocks.
`tests/unit/rewards/test_model_text.py` feeds every parser of model text a megabyte of each delimiter; list a new one
there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

Parsed = TypeVar("Parsed")
MAX_CHARACTERS = 2**20
LONG_CHARACTERS = 2**16
_FENCE = "```"
_LANGUAGE = re.compile(r"[ \t]*(\w*)")
_PROGRAM = re.compile(r"^```python[ \t]*\n", re.MULTILINE)
_CLOSING = re.compile(r"^```[ \t]*$", re.MULTILINE)


async def run_off_loop(text: str, parse: Callable[[], Parsed]) -> Parsed:
    """Run `parse`; for long texts in a thread, so that the event loop is not blocked."""
    return parse() if len(text) <= LONG_CHARACTERS else await asyncio.to_thread(parse)


class FencedBlock(NamedTuple):
    language: str  # as written after the opening fence; "" without one
    body: str  # with the newline of its last line


def fenced_blocks(text: str) -> Iterator[FencedBlock]:
    """Yield the closed fenced blocks in order."""
    if len(text) > MAX_CHARACTERS:
        return
    opening = _fence_line(text, 0)
    while opening >= 0:
        line_end = text.find("\n", opening)
        closing = _fence_line(text, line_end + 1) if line_end >= 0 else -1
        if closing < 0:
            return
        language = _LANGUAGE.match(text, opening + len(_FENCE), line_end)
        assert language is not None  # it also matches the empty string
        yield FencedBlock(language[1], text[line_end + 1 : closing])
        opening = _fence_line(text, text.find("\n", closing) + 1 or len(text))


def _fence_line(text: str, start: int) -> int:
    """Index of the first line that begins with ```, from `start`; -1 if there is none."""
    if text.startswith(_FENCE, start):
        return start
    found = text.find("\n" + _FENCE, start)
    return found + 1 if found >= 0 else -1


def fenced_programs(text: str) -> Iterator[str]:
    """Yield the text between each ```python line and the next ``` line."""
    if len(text) > MAX_CHARACTERS:
        return
    start = 0
    while (opening := _PROGRAM.search(text, start)) is not None:
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            return
        yield text[opening.end() : closing.start()]
        start = closing.end()


def tagged(text: str, tag: str) -> Iterator[str]:
    """Yield the text between each <tag> and the next </tag>."""
    if len(text) > MAX_CHARACTERS:
        return
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    while start >= 0:
        end = text.find(closing, start)
        if end < 0:
            return
        yield text[start + len(opening) : end]
        start = text.find(opening, end)


@dataclass(frozen=True)
class TaggedObject:
    start: int  # of its opening tag in the text
    end: int  # behind its closing tag
    body: str  # from { to }


def tagged_objects(text: str, tag: str) -> Iterator[TaggedObject]:
    """Yield each {…} inside a <tag>; the object ends at the first </tag> after a brace, ignoring white space.

    A closing tag inside the object's strings does not end it, unless a brace precedes the tag.
    """
    if len(text) > MAX_CHARACTERS:
        return
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    while start >= 0:
        first = _skip_space(text, start + len(opening))
        if text[first : first + 1] != "{":
            start = text.find(opening, first)
            continue
        last, end = _closed_object(text, closing, first)
        if end < 0:
            return
        yield TaggedObject(start, end, text[first : last + 1])
        start = text.find(opening, end)


def _closed_object(text: str, closing: str, first: int) -> tuple[int, int]:
    """The last brace of the object that begins at `first`, and the end of its closing tag; -1 if unclosed."""
    behind = first + 1
    while (place := text.find(closing, behind)) >= 0:
        last = _skip_space_back(text, place, behind)
        if last > first and text[last] == "}":
            return last, place + len(closing)
        behind = place + len(closing)
    return -1, -1


_SPACE = re.compile(r"\s*")


def _skip_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None  # it also matches the empty string
    return found.end()


def _skip_space_back(text: str, place: int, behind: int) -> int:
    """Index of the last non-space character before `place`; `behind` - 1 if there is none."""
    return behind + len(text[behind:place].rstrip()) - 1


_BOX = re.compile(r"\\(?:boxed|fbox)\{|[{}]")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last complete \boxed{…} or \fbox{…}, or None."""
    if len(text) > MAX_CHARACTERS:
        return None
    open_braces: list[int] = []  # start of a box's content; 0 for other braces
    begin = end = 0
    first = min(
        (place for place in (text.find("\\boxed{"), text.find("\\fbox{")) if place >= 0), default=len(text)
    )
    for brace in _BOX.finditer(text, first):
        if brace[0] == "{":
            open_braces.append(0)
        elif brace[0] != "}":
            open_braces.append(brace.end())
        elif open_braces:
            content = open_braces.pop()
            if content > begin:
                begin, end = content, brace.start()
    return text[begin:end] if begin else None


def boxed_at_end(text: str) -> str | None:
    r"""Return the content of a \boxed{…} at the end of the text, or None; nested braces are not supported."""
    text = text.rstrip()
    start = text.rfind("\\boxed{")
    content = text[start + len("\\boxed{") : -1]
    return content if start >= 0 and text.endswith("}") and not _BRACE.search(content) else None


_BRACE = re.compile(r"[{}]")
