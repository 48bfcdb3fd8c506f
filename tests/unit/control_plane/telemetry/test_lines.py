from __future__ import annotations

import pytest

from control_plane.telemetry.ingest.lines import parse_lines
from oolong.contracts.telemetry import Note, Points
from tests.unit.control_plane.telemetry.world import encode, step

GOOD = encode(step(1))


def test_lines_carry_the_offset_of_their_first_byte() -> None:
    parsed = parse_lines(GOOD + b"\n" + GOOD, offset=1000)
    assert [one.offset for one in parsed.good] == [1000, 1000 + len(GOOD) + 1]
    assert all(isinstance(one.line, Points) for one in parsed.good)
    assert parsed.bad == []


@pytest.mark.parametrize(
    "text",
    [
        b"not json",
        b'{"type":"unheard of"}',
        b'{"type":"points","axis":"step","x":1,"values":{"a":"nan"}}',
        b'{"type":"points","axis":"step","x":9007199254740993,"values":{"a":1}}',
        b'{"type":"points","axis":"step","x":1,"values":{"a":1e999}}',
        b'{"type":"points","axis":"sideways","x":1,"values":{}}',
        b'{"type":"points","axis":"step","x":99999999999999999999,"values":{"a":1}}',
        b'{"type":"points","axis":"step","x":1,"values":{"' + b"n" * 200 + b'":1}}',
        b'{"type":"points","axis":"step","x":1,"at":1e300,"values":{"a":1}}',
        b'{"type":"note","kind":"k","message":"\xff"}',
        b'{"type":"note","kind":"k","message":"\\ud800"}',
        b"[]",
        b'{"type":"note","kind":"k"',
    ],
)
def test_an_invalid_line_is_reported_and_its_neighbors_are_parsed(text: bytes) -> None:
    parsed = parse_lines(GOOD + text + b"\n" + GOOD, offset=0)
    assert len(parsed.good) == 2
    assert [line.offset for line in parsed.bad] == [len(GOOD)]
    assert parsed.bad[0].reason


def test_a_carriage_return_does_not_end_a_line() -> None:
    parsed = parse_lines(b'{"type":"note",\r"kind":"k","message":"m"}\n', offset=0)
    assert [one.line for one in parsed.good] == [Note(kind="k", message="m")]


def test_nul_which_postgres_cannot_hold_is_replaced() -> None:
    parsed = parse_lines(encode(Note(kind="k", message="a\x00b")), offset=0)
    assert [one.line.message for one in parsed.good] == ["a\ufffdb"]  # type: ignore[union-attr]
