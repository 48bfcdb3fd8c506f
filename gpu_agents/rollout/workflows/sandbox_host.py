"""The worker's side of one sandbox in which an uploaded workflow runs, for a few episodes at a time.

The process inside sees one socket. Its calls run on the worker's own episodes, so tokens, log-probabilities and
versions always come from the engine. Calls, bytes and idle time are bounded.
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

from gpu_agents.rollout.workflows import socket_messages as messages
from oolong import workflow as workflow_module
from oolong.untrusted import clean_text
from oolong.workflow import Episode, OutOfRoom, WorkflowFailed

GUEST = Path(__file__).with_name("guest.py")
LINE_BYTES = 4 * 1024**2
MAX_CALLS = 1000  # per episode
MAX_BYTES = 32 * 1024**2  # per episode
IDLE_SECONDS = 60.0  # between two calls of one episode
EXIT_SECONDS = 2.0  # from the end of the socket to the end of the process
DRAIN_SECONDS = 10.0  # to read the remaining messages of a process that exited
QUEUED_LINES = 16  # per episode; when full, reading from the socket pauses
GUEST_KINDS = frozenset({"user_code", "out_of_room", "diverged", "misuse", "sandbox"})


class Launcher(Protocol):
    """Runs the guest program; in production always in a sandbox."""

    def __call__(self, program: str, common: dict[str, Any], socket: Path, stop: threading.Event) -> str:
        """Block until the process ends or `stop` is set. Return why it ended, or "" if it exited by itself.

        `program` gets `common` as a global name, with `common["socket"]` set to its own path of the socket.
        """


class SandboxHost:
    """One sandbox. It runs `capacity` episodes and ends with the last of them."""

    def __init__(self, source: str, options: dict[str, Any], launch: Launcher, *, capacity: int) -> None:
        self._source = source
        self._options = options
        self._launch = launch
        self._capacity = capacity
        self._active = 0
        self._begun = 0
        self._inboxes: dict[int, asyncio.Queue[messages.AnyMessage | None]] = {}
        self._bytes: dict[int, int] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._stop = threading.Event()
        self._end_reason = ""  # why the process ended
        self._ready: asyncio.Future[None] | None = None  # done when the process has loaded the file
        self._all_read = asyncio.Event()  # set when the socket is closed and all of its messages are read
        self._running: asyncio.Task[None] | None = None

    @property
    def has_capacity(self) -> bool:
        return self._begun < self._capacity and not self._end_reason and not self._stop.is_set()

    @property
    def has_ended(self) -> bool:
        return self._running is not None and self._running.done()

    def reserve(self) -> int:
        """Reserve capacity for one episode and return its number for `run`."""
        if self._running is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run_process())
        self._begun += 1
        self._active += 1
        return self._begun

    async def run(self, number: int, episode: Episode) -> float:
        """Run one episode and return the workflow's value. Raises WorkflowFailed, and what the episode raises."""
        assert self._ready is not None
        begun = False
        inbox = self._inboxes[number] = asyncio.Queue(QUEUED_LINES)
        self._bytes[number] = 0
        try:
            await asyncio.shield(self._ready)  # writing to an ended process could lose its last messages
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
            while not inbox.empty():  # the socket's reader must not block on this episode
                inbox.get_nowait()
            if begun and self._writer is not None and not self._end_reason:
                self._writer.write(b'{"drop":%d}\n' % number)
            self._active -= 1
            if not self._active and self._begun >= self._capacity:
                self._stop.set()

    async def close(self) -> None:
        self._stop.set()
        if self._running is not None:
            await self._running

    async def _serve(
        self, number: int, inbox: asyncio.Queue[messages.AnyMessage | None], episode: Episode
    ) -> float:
        for _ in range(MAX_CALLS):
            message = await self._next(inbox)
            if isinstance(message, messages.Done):
                if not math.isfinite(message.worth):
                    raise WorkflowFailed("user_code", f"run returned {message.worth}, which is not finite")
                return message.worth
            if isinstance(message, messages.Failed):
                kind = message.kind if message.kind in GUEST_KINDS else "user_code"
                raise WorkflowFailed(kind, clean_text(message.message))
            if isinstance(message, messages.Hello | messages.Ready | messages.Unusable):
                raise WorkflowFailed("protocol", "the process in the sandbox violates the protocol")
            await self._send(episode=number, **await _answer(message, episode))
        raise WorkflowFailed("too_many_calls", f"the workflow made {MAX_CALLS} calls and did not return")

    async def _next(self, inbox: asyncio.Queue[messages.AnyMessage | None]) -> messages.AnyMessage:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                message = await inbox.get()
        except TimeoutError as error:
            why = f"the workflow made no call for {IDLE_SECONDS:g} s and did not return"
            self._stop.set()  # it may be in an endless loop, which blocks all of its episodes
            raise WorkflowFailed("silent", why) from error
        if message is None:
            raise WorkflowFailed("sandbox", self._end_reason)
        return message

    async def _send(self, **message: Any) -> None:
        if self._writer is None or self._end_reason:
            raise WorkflowFailed("sandbox", self._end_reason)
        self._writer.write(msgspec.json.encode(message) + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise WorkflowFailed("sandbox", await self._wait_for_end()) from error

    # --- the process --------------------------------------------------------------------------------------

    async def _run_process(self) -> None:
        """Run the process and serve its socket. When it ends, notify all waiting episodes."""
        with tempfile.TemporaryDirectory(prefix="oolong-workflow-") as folder:
            Path(folder).chmod(0o711)  # the sandbox runs as another user; the folder cannot be listed
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
            ended = "the sandbox could not start"
            try:
                ended = await in_thread(lambda: self._launch(GUEST.read_text(), common, path, self._stop))
                if not ended and not self._stop.is_set():
                    await self._drain_socket()
            finally:
                server.close()
                self._end(ended or "the workflow's process ended before its episodes")

    async def _drain_socket(self) -> None:
        """Wait until the last messages of a process that exited are read: they may say why."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._all_read.wait()
        except TimeoutError:
            return  # it never connected, or no episode reads its messages

    async def _wait_for_end(self) -> str:
        """The socket is closed: wait for the reason of the process's end, or end the process now."""
        assert self._running is not None
        await asyncio.wait({self._running}, timeout=EXIT_SECONDS)
        self._end("the workflow's process closed its socket")
        return self._end_reason

    def _end(self, why: str) -> None:
        if self._end_reason:
            return
        self._end_reason = why = clean_text(why)
        self._stop.set()
        assert self._ready is not None
        if not self._ready.done():
            self._ready.set_exception(WorkflowFailed("sandbox", why))
            self._ready.exception()  # mark as retrieved: there may be no waiter
        if self._writer is not None:
            self._writer.close()
        for inbox in self._inboxes.values():
            while inbox.full():
                inbox.get_nowait()
            inbox.put_nowait(None)

    def _accept(self, key: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                hello = messages.decode_line(await reader.readline())
                if self._writer is not None or not isinstance(hello, messages.Hello) or hello.key != key:
                    writer.close()
                    return
                self._writer = writer
                try:
                    await self._read(reader)
                finally:
                    self._all_read.set()
                await self._wait_for_end()
            except (msgspec.DecodeError, ValueError) as error:  # ValueError: a line over LINE_BYTES
                self._end(f"the process in the sandbox violates the protocol: {error}")
            except ConnectionError:
                await self._wait_for_end()

        return accept

    async def _read(self, reader: asyncio.StreamReader) -> None:
        if not await self._is_loaded(reader):
            return
        while line := await reader.readline():
            message = messages.decode_line(line)
            if isinstance(message, messages.Hello):
                raise ValueError("a second hello")
            if isinstance(message, messages.Ready | messages.Unusable):
                raise ValueError("a second ready or unusable")
            inbox = self._inboxes.get(message.episode)
            if inbox is None:
                continue  # the episode was dropped
            self._bytes[message.episode] += len(line)
            if self._bytes[message.episode] > MAX_BYTES:
                raise ValueError(f"episode {message.episode} sent more than {MAX_BYTES} bytes")
            await inbox.put(message)

    async def _is_loaded(self, reader: asyncio.StreamReader) -> bool:
        """Wait until the process has loaded the file. Otherwise end it and return False."""
        assert self._ready is not None
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                line = await reader.readline()
        except TimeoutError:
            self._end(f"the workflow's file was not loaded within {IDLE_SECONDS:g} s")
            return False
        match messages.decode_line(line) if line else None:
            case messages.Ready():
                if not self._ready.done():  # it may have ended
                    self._ready.set_result(None)
                return True
            case messages.Unusable(message=message):
                self._end(f"the workflow's file cannot be loaded: {message}")
            case None:
                pass
            case _:
                raise ValueError("a call before ready")
        return False


async def in_thread(work: Callable[[], str]) -> str:
    """Run in a dedicated thread: it may last as long as the run, which would occupy a pool's thread."""
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
        except BaseException as raised:  # noqa: BLE001 - raised again in the awaiting task
            value, error = "", raised
        loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=body, daemon=True, name="workflow-sandbox").start()
    return await result


async def _answer(call: messages.AnyMessage, episode: Episode) -> dict[str, Any]:
    """Run a call and build its reply. Failures that the workflow may handle are part of the reply."""
    before = len(episode.context_token_ids)
    try:
        result = await _execute(call, episode)
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


async def _execute(call: messages.AnyMessage, episode: Episode) -> dict[str, Any]:
    match call:
        case messages.Sample():
            turn = await episode.sample(call.prompt_ids, max_new_tokens=call.max_new_tokens)
            return {"token_ids": turn.token_ids, "text": turn.text, "finish_reason": turn.finish_reason}
        case messages.Score():
            return {"score": await episode.score(call.text)}
        case messages.Execute():
            return {"text": await episode.execute(call.code, max_output_tokens=call.max_output_tokens)}
        case messages.AppendMessages():
            await episode.append_messages(call.messages)
        case messages.AppendEnvironmentTokens():
            await episode.append_environment_tokens(call.token_ids)
    return {}
