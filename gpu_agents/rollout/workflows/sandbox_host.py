"""The worker's side of one sandbox in which a workflow of users runs, for a few episodes at a time.

The process inside sees one socket. What it asks for is done on the worker's own episodes, so that tokens,
log-probabilities and versions are the engine's whatever the code inside says; calls, bytes and silence are bounded.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gpu_agents.rollout.workflows import socket_messages as said
from oolong import workflow as workflow_module
from oolong.untrusted import clean_text
from oolong.workflow import Episode, OutOfRoom, WorkflowFailed

GUEST = Path(__file__).with_name("guest.py")
LINE_BYTES = 4 * 1024**2
MAX_CALLS = 1000  # of one episode
MAX_BYTES = 32 * 1024**2  # of one episode
SILENT_SECONDS = 60.0  # between two calls of one episode
LAST_WORD_SECONDS = 2.0
UNREAD_SECONDS = 10.0  # what a process said before it ended by itself is read for so long
QUEUED_LINES = 16  # of one episode, before its socket is read no further
KINDS_INSIDE = frozenset({"user_code", "out_of_room", "diverged", "misuse", "sandbox"})


class Launcher(Protocol):
    """Runs the program inside; in production a sandbox, and nothing else."""

    def __call__(self, program: str, common: dict[str, Any], socket: Path, stop: threading.Event) -> str:
        """Blocks until the process is over, or `stop` is set; says why it ended, "" when it did so by itself.

        `program` finds `common` as a global name, with `common["socket"]` set to where the socket is for it.
        """


class SandboxHost:
    """One sandbox. `seats` episodes are begun in it, then it ends with the last of them."""

    def __init__(self, source: str, options: dict[str, Any], launch: Launcher, *, seats: int) -> None:
        self._source = source
        self._options = options
        self._launch = launch
        self._seats = seats
        self._playing = 0
        self._begun = 0
        self._inboxes: dict[int, asyncio.Queue[said.AnyMessage | None]] = {}
        self._bytes: dict[int, int] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._stop = threading.Event()
        self._over = ""  # why the process is over
        self._ready: asyncio.Future[None] | None = None  # the process has loaded the file
        self._all_read = asyncio.Event()  # the socket has ended, and what came through it was read
        self._running: asyncio.Task[None] | None = None

    @property
    def has_capacity(self) -> bool:
        return self._begun < self._seats and not self._over and not self._stop.is_set()

    @property
    def is_over(self) -> bool:
        return self._running is not None and self._running.done()

    def reserve(self) -> int:
        """Take a seat; `play` follows."""
        if self._running is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run())
        self._begun += 1
        self._playing += 1
        return self._begun

    async def play(self, number: int, episode: Episode) -> float:
        """What the workflow says the episode is worth. Raises WorkflowFailed, and whatever the episode raises."""
        assert self._ready is not None
        begun = False
        inbox = self._inboxes[number] = asyncio.Queue(QUEUED_LINES)
        self._bytes[number] = 0
        try:
            await asyncio.shield(self._ready)  # a write to a process that has ended could lose its last words
            begun = True
            await self._send(
                begin=number,
                prompt=episode.prompt,
                prompt_token_ids=episode.prompt_token_ids,
                answer=episode.answer,
                row=episode.row,
                room_tokens=episode.room_tokens,
            )
            return await self._serve(number, inbox, episode)
        finally:
            del self._inboxes[number]
            while not inbox.empty():  # what is read from the socket must not wait for this episode
                inbox.get_nowait()
            if begun and self._writer is not None and not self._over:
                self._writer.write(b'{"drop":%d}\n' % number)
            self._playing -= 1
            if not self._playing and self._begun >= self._seats:
                self._stop.set()

    async def close(self) -> None:
        self._stop.set()
        if self._running is not None:
            await self._running

    async def _serve(
        self, number: int, inbox: asyncio.Queue[said.AnyMessage | None], episode: Episode
    ) -> float:
        for _ in range(MAX_CALLS):
            message = await self._next(inbox)
            if isinstance(message, said.Done):
                if not math.isfinite(message.worth):
                    raise WorkflowFailed("user_code", f"run returned {message.worth}, which is not finite")
                return message.worth
            if isinstance(message, said.Failed):
                kind = message.kind if message.kind in KINDS_INSIDE else "user_code"
                raise WorkflowFailed(kind, clean_text(message.message))
            if isinstance(message, said.Hello | said.Ready | said.Unusable):
                raise WorkflowFailed("protocol", "the process in the sandbox does not keep to the protocol")
            await self._send(episode=number, **await _answer(message, episode))
        raise WorkflowFailed("too_many_calls", f"the workflow made {MAX_CALLS} calls without an end")

    async def _next(self, inbox: asyncio.Queue[said.AnyMessage | None]) -> said.AnyMessage:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                message = await inbox.get()
        except TimeoutError as error:
            why = f"the workflow asked for nothing during {SILENT_SECONDS:g} s and did not end"
            self._stop.set()  # it may be in a loop, and then none of its episodes goes on
            raise WorkflowFailed("silent", why) from error
        if message is None:
            raise WorkflowFailed("sandbox", self._over)
        return message

    async def _send(self, **message: Any) -> None:
        if self._writer is None or self._over:
            raise WorkflowFailed("sandbox", self._over)
        self._writer.write(msgspec.json.encode(message) + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise WorkflowFailed("sandbox", await self._why_it_ended()) from error

    # --- the process --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """From the listening socket to the end of the process; then every episode that waits is told."""
        with tempfile.TemporaryDirectory(prefix="oolong-workflow-") as folder:
            Path(folder).chmod(0o711)  # another user runs the sandbox; names in here cannot be listed
            path = Path(folder) / f"{secrets.token_hex(8)}.sock"
            key = secrets.token_hex(16)
            server = await asyncio.start_unix_server(self._accept(key), path, limit=LINE_BYTES)
            os.chmod(path, 0o666)
            common = {
                "socket": str(path),
                "key": key,
                "workflow_module": Path(workflow_module.__file__).read_text(),
                "source": self._source,
                "options": self._options,
            }
            ended = "its sandbox could not be run"
            try:
                ended = await in_thread(lambda: self._launch(GUEST.read_text(), common, path, self._stop))
                if not ended and not self._stop.is_set():
                    await self._read_last_words()
            finally:
                server.close()
                self._end(ended or "the workflow's process ended before its episodes")

    async def _read_last_words(self) -> None:
        """A process that ended by itself may have said why, and it need not have been read yet."""
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                await self._all_read.wait()
        except TimeoutError:
            return  # it never connected, or nobody takes what it said

    async def _why_it_ended(self) -> str:
        """Its socket is closed: it has ended, and how is about to be known; or it is ended now."""
        assert self._running is not None
        await asyncio.wait({self._running}, timeout=LAST_WORD_SECONDS)
        self._end("the workflow's process closed its socket")
        return self._over

    def _end(self, why: str) -> None:
        if self._over:
            return
        self._over = why = clean_text(why)
        self._stop.set()
        assert self._ready is not None
        if not self._ready.done():
            self._ready.set_exception(WorkflowFailed("sandbox", why))
            self._ready.exception()  # perhaps nobody waits
        if self._writer is not None:
            self._writer.close()
        for inbox in self._inboxes.values():
            while inbox.full():
                inbox.get_nowait()
            inbox.put_nowait(None)

    def _accept(self, key: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                hello = said.decode_line(await reader.readline())
                if self._writer is not None or not isinstance(hello, said.Hello) or hello.key != key:
                    writer.close()
                    return
                self._writer = writer
                try:
                    await self._read(reader)
                finally:
                    self._all_read.set()
                await self._why_it_ended()
            except (msgspec.DecodeError, ValueError) as error:  # ValueError: a line over LINE_BYTES
                self._end(f"the process in the sandbox does not keep to the protocol: {error}")
            except ConnectionError:
                await self._why_it_ended()

        return accept

    async def _read(self, reader: asyncio.StreamReader) -> None:
        if not await self._is_loaded(reader):
            return
        while line := await reader.readline():
            message = said.decode_line(line)
            if isinstance(message, said.Hello):
                raise ValueError("a second hello")
            if isinstance(message, said.Ready | said.Unusable):
                raise ValueError("it was loaded already")
            inbox = self._inboxes.get(message.episode)
            if inbox is None:
                continue  # of an episode that was dropped
            self._bytes[message.episode] += len(line)
            if self._bytes[message.episode] > MAX_BYTES:
                raise ValueError(f"episode {message.episode} sent more than {MAX_BYTES} bytes")
            await inbox.put(message)

    async def _is_loaded(self, reader: asyncio.StreamReader) -> bool:
        """Whether the process has the file, and may be asked; else it has ended, or is ended."""
        assert self._ready is not None
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                line = await reader.readline()
        except TimeoutError:
            self._end(f"the workflow's file was not loaded within {SILENT_SECONDS:g} s")
            return False
        match said.decode_line(line) if line else None:
            case said.Ready():
                if not self._ready.done():  # it may be over by now
                    self._ready.set_result(None)
                return True
            case said.Unusable(message=message):
                self._end(f"the workflow's file cannot be loaded: {message}")
            case None:
                pass
            case _:
                raise ValueError("it speaks before it has loaded the file")
        return False


async def in_thread(work: Callable[[], str]) -> str:
    """In a thread of its own: it may last as long as the run, and would hold one of a pool for that time."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[str] = loop.create_future()

    def settle(value: str, error: BaseException | None) -> None:
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)

    def body() -> None:
        try:
            value, error = work(), None
        except BaseException as raised:  # noqa: BLE001 - it is raised again where it is waited for
            value, error = "", raised
        loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=body, daemon=True, name="workflow-sandbox").start()
    return await result


async def _answer(call: said.AnyMessage, episode: Episode) -> dict[str, Any]:
    """What a call gives; a failure that the workflow may handle goes back as its answer."""
    before = len(episode.context_token_ids)
    try:
        result = await _do(call, episode)
    except OutOfRoom as error:
        return {
            "error": {
                "kind": error.kind,
                "message": str(error),
                "wanted": error.wanted,
                "room": error.room,
            }
        }
    except WorkflowFailed as error:
        return {"error": {"kind": error.kind, "message": str(error)}}
    return {"added": episode.context_token_ids[before:], "room_tokens": episode.room_tokens, **result}


async def _do(call: said.AnyMessage, episode: Episode) -> dict[str, Any]:
    match call:
        case said.Sample():
            turn = await episode.sample(call.prompt_ids, max_new_tokens=call.max_new_tokens)
            return {"token_ids": turn.token_ids, "text": turn.text, "finish_reason": turn.finish_reason}
        case said.Score():
            return {"score": await episode.score(call.text)}
        case said.Execute():
            return {"text": await episode.execute(call.code, max_output_tokens=call.max_output_tokens)}
        case said.AppendMessages():
            await episode.append_messages(call.messages)
        case said.AppendEnvironmentTokens():
            await episode.append_environment_tokens(call.token_ids)
    return {}
