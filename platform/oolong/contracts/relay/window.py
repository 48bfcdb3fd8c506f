"""Flow control of one direction of a stream: pure counting, no bytes are kept here.

The sender may have at most `WINDOW_BYTES` on their way that the receiver has not passed on. So a reader that
stops reading costs a window, on every process between the two ends together, however much there is to send.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_BYTES = 256 * 1024
FRAME_BYTES = 32 * 1024  # content of one Data frame at most, so that streams take turns


class Violation(Exception):
    """The other side broke the rules of flow control or numbering; the stream is cancelled."""


class Lost(Exception):
    """Frames are missing: they were lost between processes, and the stream cannot be whole any more."""


@dataclass
class SendWindow:
    """What this side may still send."""

    credit: int = WINDOW_BYTES
    next_number: int = 0

    def room(self) -> int:
        """Bytes that the next Data frame may carry; 0: wait for credit."""
        return min(self.credit, FRAME_BYTES)

    def send(self, size: int) -> int:
        """Account for one frame of `size` bytes (0 for End); its number."""
        if size > self.room():
            raise ValueError(f"{size} bytes are more than the {self.room()} that may be sent now")
        self.credit -= size
        number = self.next_number
        self.next_number += 1
        return number

    def grant(self, size: int) -> None:
        if size <= 0 or self.credit + size > WINDOW_BYTES:
            raise Violation(
                f"a credit of {size} bytes on top of {self.credit} is more than the window {WINDOW_BYTES}"
            )
        self.credit += size


@dataclass
class ReceiveWindow:
    """What the other side may still send, and how much it may send in all."""

    most_bytes: int  # of the whole direction
    open_bytes: int = WINDOW_BYTES  # the other side's credit as this side counts it
    received_bytes: int = 0
    next_number: int = 0
    passed_on: int = 0  # not yet granted again

    def receive(self, number: int, size: int) -> None:
        """Account for one frame (size 0 for End). Raises Lost, Violation."""
        if number != self.next_number:
            if number > self.next_number:
                raise Lost(f"frames {self.next_number} to {number - 1} are missing")
            raise Violation(f"frame {number} came when {self.next_number} was due")
        if size > self.open_bytes or size > FRAME_BYTES:
            raise Violation(
                f"{size} bytes in one frame; {self.open_bytes} were open and {FRAME_BYTES} is the most"
            )
        self.next_number += 1
        self.open_bytes -= size
        self.received_bytes += size

    @property
    def too_large(self) -> bool:
        return self.received_bytes > self.most_bytes

    def consume(self, size: int) -> int:
        """`size` bytes were read by whoever wanted them; the credit to grant now, 0 for not yet."""
        self.passed_on += size
        if self.passed_on < WINDOW_BYTES // 4:
            return 0  # small reads must not cost a frame each
        granted, self.passed_on = self.passed_on, 0
        self.open_bytes += granted
        return granted
