"""One end of a relayed stream for asyncio: what a request's handler reads from and writes to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from oolong.contracts.relay.frames import AnyFrame, Cancel, CancelCode, Credit, Data, End, Head, Open
from oolong.contracts.relay.window import Lost, ReceiveWindow, SendWindow, Violation


class Cancelled(Exception):
    """The stream has ended before its time, by either side; the code says why."""

    def __init__(self, code: CancelCode, message: str) -> None:
        super().__init__(message or code)
        self.code: CancelCode = code
        self.message = message


class Pipe:
    """`emit` puts a frame on its way to the other end and never waits: credit bounds what it has to hold.

    `deliver` takes what comes from there, and never waits either. `ended` is called once, when no frame will
    come or go any more.
    """

    def __init__(
        self,
        stream: str,
        *,
        emit: Callable[[AnyFrame], None],
        ended: Callable[[], None],
        max_received_bytes: int,
    ) -> None:
        self.stream = stream
        self._emit = emit
        self._on_ended = ended
        self._sending = SendWindow()
        self._receiving = ReceiveWindow(most_bytes=max_received_bytes)
        self._parts: deque[bytes] = deque()
        self._head: Head | None = None
        self._received_end = False
        self._sent_end = False
        self._cancelled: Cancelled | None = None
        self._over = False
        self._changed = asyncio.Event()

    @property
    def buffered_bytes(self) -> int:
        """Received and not yet read."""
        return sum(len(part) for part in self._parts)

    # --- this side ----------------------------------------------------------------------------------------

    async def write(self, content: bytes) -> None:
        """Send, waiting for credit as often as it takes. Raises Cancelled."""
        view = memoryview(content)
        while view:
            await self._until(lambda: self._sending.room() > 0)
            part = bytes(view[: self._sending.room()])
            view = view[len(part) :]
            self._emit(Data(self.stream, self._sending.send(len(part)), part))

    def write_head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self._raise_if_cancelled()
        self._emit(Head(self.stream, status, headers))

    def write_end(self) -> None:
        self._raise_if_cancelled()
        self._sent_end = True
        self._emit(End(self.stream, self._sending.send(0)))
        self._end_if_done()

    async def read_head(self) -> Head:
        await self._until(lambda: self._head is not None)
        assert self._head is not None
        return self._head

    async def read(self) -> bytes | None:
        """The next part; None at the end. Reading is what grants the other side more credit."""
        await self._until(lambda: bool(self._parts) or self._received_end)
        if not self._parts:
            return None
        part = self._parts.popleft()
        if not self._received_end and (granted := self._receiving.consume(len(part))):
            self._emit(Credit(self.stream, granted))
        return part

    def cancel(self, code: CancelCode, message: str = "") -> None:
        """End the stream from here; a second time, and after its proper end, changes nothing."""
        if self._over:
            return
        self._emit(Cancel(self.stream, code, message))
        self._break_off(Cancelled(code, message))

    # --- the other side -----------------------------------------------------------------------------------

    def deliver(self, frame: AnyFrame) -> None:
        if self._over:
            return  # on their way when the stream ended
        try:
            self._take(frame)
        except Violation as error:
            self.cancel("protocol", str(error))
        except Lost as error:
            self.cancel("lost", str(error))

    def _take(self, frame: AnyFrame) -> None:
        match frame:
            case Data(number=number, content=content):
                if self._received_end:
                    raise Violation("data after the end")
                if not content:
                    raise Violation("data without a byte")  # credit would not bound how many of them are held
                self._receiving.receive(number, len(content))
                if self._receiving.too_large:
                    self.cancel("too_large", f"more than {self._receiving.most_bytes} bytes")
                    return
                self._parts.append(content)
            case End(number=number):
                self._receiving.receive(number, 0)
                self._received_end = True
                self._end_if_done()
            case Credit(grant=grant):
                if not self._sent_end:
                    self._sending.grant(grant)
            case Head(status=status):
                if self._head is not None:
                    raise Violation("a second head")
                if not 200 <= status <= 599:
                    raise Violation(f"a head of status {status}")
                self._head = frame
            case Cancel(code=code, message=message):
                self._break_off(Cancelled(code, message))
            case Open():
                raise Violation("a stream is opened once")
        self._wake()

    # --- inside -------------------------------------------------------------------------------------------

    def _end_if_done(self) -> None:
        if self._sent_end and self._received_end:
            self._finish()

    def _break_off(self, why: Cancelled) -> None:
        self._cancelled = why
        self._parts.clear()
        self._finish()

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._wake()
            self._on_ended()

    def _raise_if_cancelled(self) -> None:
        if self._cancelled is not None:
            raise self._cancelled

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, ready: Callable[[], bool]) -> None:
        while True:
            self._raise_if_cancelled()
            if ready():
                return
            await self._changed.wait()
