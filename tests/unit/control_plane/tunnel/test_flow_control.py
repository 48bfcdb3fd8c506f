"""A stream holds what the window says, loses nothing, and says so when something was lost."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oolong.contracts.relay.frames import (
    AnyFrame,
    BadFrame,
    Cancel,
    Credit,
    Data,
    End,
    Head,
    Open,
    decode,
    encode,
)
from oolong.contracts.relay.pipe import Cancelled, Pipe
from oolong.contracts.relay.window import (
    FRAME_BYTES,
    WINDOW_BYTES,
    Lost,
    ReceiveWindow,
    SendWindow,
    Violation,
)

FRAMES = [
    Open("s", "att_1", "sessions", "POST", "0-ab/v1/models", [("accept", "*/*")]),
    Head("s", 200, [("content-type", "text/event-stream")]),
    Data("s", 3, b"\x00\xff"),
    End("s", 4),
    Credit("s", 70000),
    Cancel("s", "lost", "frames 3 to 4 are missing"),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_arrives_as_it_was_sent(frame: AnyFrame) -> None:
    assert decode(encode(frame)) == frame


@pytest.mark.parametrize("message", [b"", b"\xc1", b'{"stream": 1}', encode(FRAMES[0])[:-3]])
def test_what_is_no_frame_is_refused(message: bytes) -> None:
    with pytest.raises(BadFrame, match=f"{len(message)} bytes"):
        decode(message)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3 * FRAME_BYTES)), max_size=300))
def test_whatever_the_order_of_sending_and_reading_a_window_bounds_what_is_held(
    moves: list[tuple[bool, int]],
) -> None:
    """Sends as much as is allowed, reads as much as there is, in any order; grants arrive at once."""
    sender, receiver, held = SendWindow(), ReceiveWindow(most_bytes=2**40), 0
    for sends, size in moves:
        if sends:
            part = min(size, sender.room())
            if part:
                receiver.receive(sender.send(part), part)
                held += part
        else:
            part = min(size, held)
            held -= part
            if granted := receiver.consume(part):
                sender.grant(granted)
        assert 0 <= held <= WINDOW_BYTES
        assert sender.credit == receiver.open_bytes
    # And it never stands still: once all is read, there is room again.
    if held and (granted := receiver.consume(held)):
        sender.grant(granted)
    assert sender.room() > 0


def test_a_number_left_out_is_a_loss_and_one_repeated_a_violation() -> None:
    receiver = ReceiveWindow(most_bytes=100)
    receiver.receive(0, 10)
    with pytest.raises(Lost, match="frames 1 to 2"):
        receiver.receive(3, 10)
    with pytest.raises(Violation, match="frame 0 came when 1"):
        receiver.receive(0, 10)


def test_more_than_the_credit_is_a_violation_on_both_sides() -> None:
    receiver = ReceiveWindow(most_bytes=2**40)
    for number in range(WINDOW_BYTES // FRAME_BYTES):
        receiver.receive(number, FRAME_BYTES)
    with pytest.raises(Violation, match="0 were open"):
        receiver.receive(WINDOW_BYTES // FRAME_BYTES, 1)
    with pytest.raises(Violation, match="more than the window"):
        SendWindow().grant(1)
    with pytest.raises(ValueError, match="more than"):
        SendWindow().send(FRAME_BYTES + 1)


class Line:
    """Two pipes and the frames between them, delivered when the test says so."""

    def __init__(self, *, most_bytes: int = 2**40) -> None:
        self.frames: deque[tuple[str, AnyFrame]] = deque()
        self.ended: list[str] = []
        self.near, self.far = (
            Pipe(
                "s",
                emit=lambda frame, to=to: self.frames.append((to, frame)),  # type: ignore[misc]
                ended=lambda name=name: self.ended.append(name),  # type: ignore[misc]
                max_received_bytes=most_bytes,
            )
            for name, to in (("near", "far"), ("far", "near"))
        )

    def deliver(self) -> None:
        while self.frames:
            to, frame = self.frames.popleft()
            (self.far if to == "far" else self.near).deliver(frame)

    async def run(self) -> None:
        while True:
            self.deliver()
            await asyncio.sleep(0)


async def read_all(pipe: Pipe) -> bytes:
    content = b""
    while (part := await pipe.read()) is not None:
        content += part
    return content


@settings(deadline=None, max_examples=20)
@given(st.lists(st.binary(min_size=1, max_size=50_000), max_size=40), st.integers(1, 20))
def test_bytes_arrive_whole_and_in_order_however_slow_the_reader(parts: list[bytes], factor: int) -> None:
    async def scenario() -> None:
        line = Line()
        running = asyncio.create_task(line.run())
        content = [part * factor for part in parts]

        async def write() -> None:
            for part in content:
                await line.near.write(part)
            line.near.write_end()

        writing = asyncio.create_task(write())
        for _ in range(20):
            await asyncio.sleep(0)
        assert line.far.buffered_bytes <= WINDOW_BYTES  # nobody has read yet
        assert await read_all(line.far) == b"".join(content)
        line.far.write_end()
        await writing
        assert await read_all(line.near) == b""
        line.deliver()
        assert sorted(line.ended) == ["far", "near"]
        running.cancel()

    asyncio.run(scenario())


async def test_a_writer_without_a_reader_waits_and_a_cancellation_wakes_it() -> None:
    line = Line()
    writing = asyncio.create_task(line.near.write(b"x" * 3 * WINDOW_BYTES))
    await asyncio.sleep(0)
    line.deliver()
    assert not writing.done() and line.far.buffered_bytes == WINDOW_BYTES
    line.far.cancel("gone", "nobody reads")
    line.deliver()
    with pytest.raises(Cancelled, match="nobody reads"):
        await writing
    assert line.far.buffered_bytes == 0 and sorted(line.ended) == ["far", "near"]
    line.far.cancel("timeout")
    assert not line.frames  # a stream ends once


async def test_more_bytes_than_allowed_end_the_stream_as_too_large() -> None:
    line = Line(most_bytes=1000)
    await line.near.write(b"x" * 1001)
    line.deliver()
    with pytest.raises(Cancelled) as cancelled:
        await line.far.read()
    assert cancelled.value.code == "too_large"
    with pytest.raises(Cancelled):
        line.near.write_end()


async def test_a_lost_frame_ends_the_stream_instead_of_leaving_a_hole() -> None:
    line = Line()
    await line.near.write(b"first")
    line.frames.clear()
    await line.near.write(b"second")
    line.deliver()
    with pytest.raises(Cancelled) as cancelled:
        await line.far.read()
    assert (cancelled.value.code, str(cancelled.value)) == ("lost", "frames 0 to 0 are missing")


async def test_a_second_head_and_data_after_the_end_are_against_the_rules() -> None:
    for frames in ([Head("s", 200, []), Head("s", 200, [])], [End("s", 0), Data("s", 1, b"x")]):
        line = Line()
        for frame in frames:
            line.near.deliver(frame)
        with pytest.raises(Cancelled) as cancelled:
            await read_all(line.near)
        assert cancelled.value.code == "protocol"


@pytest.mark.parametrize("frame", [Data("s", 0, b""), Head("s", 99, []), Head("s", 1000, [])], ids=str)
async def test_what_no_honest_end_sends_ends_the_stream(frame: AnyFrame) -> None:
    """Data without a byte costs no credit, so nothing else would bound how much of it is held."""
    line = Line()
    line.near.deliver(frame)
    with pytest.raises(Cancelled) as cancelled:
        await line.near.read_head()
    assert cancelled.value.code == "protocol"
