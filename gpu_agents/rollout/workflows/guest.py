"""The program in the sandbox of an uploaded workflow: runs its episodes over the one socket that is bound there.

Standard library only, without the rest of this package. It runs with one global name, `common`: socket and key, the
text of `oolong/workflow.py` (so that `from oolong.workflow import OutOfRoom` works inside), the uploaded source and
its options. Both sides send one JSON object per line; `socket_messages` defines them.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import traceback
import types
from collections.abc import Mapping, Sequence
from typing import Any

LINE_BYTES = 16 * 1024**2
SOURCE_NAME = "workflow.py"


class JsonLineSocket:
    """The connection to the worker, shared by all episodes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> dict[str, Any] | None:
        line = await self._reader.readline()
        message: dict[str, Any] | None = json.loads(line) if line else None
        return message

    async def send(self, **message: Any) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()


class Episode:
    """`oolong.workflow.Episode` whose calls run on the worker."""

    def __init__(self, socket: JsonLineSocket, api: types.ModuleType, begin: dict[str, Any]) -> None:
        self._socket = socket
        self._api = api
        self._number: int = begin["begin"]
        self._turn = asyncio.Lock()  # one call at a time, in call order
        self._reply: asyncio.Future[dict[str, Any]] | None = None
        self.prompt: str = begin["prompt"]
        self.prompt_token_ids: list[int] = begin["prompt_token_ids"]
        self.answer: str = begin["answer"]
        self.row: int = begin["row"]
        self.room_tokens: int = begin["room_tokens"]
        self.context_token_ids: list[int] = list(self.prompt_token_ids)

    async def sample(
        self, prompt_ids: Sequence[int] | None = None, *, max_new_tokens: int | None = None
    ) -> Any:
        ids = None if prompt_ids is None else list(prompt_ids)
        reply = await self._request("sample", prompt_ids=ids, max_new_tokens=max_new_tokens)
        return self._api.PolicyTurn(
            token_ids=reply["token_ids"], text=reply["text"], finish_reason=reply["finish_reason"]
        )

    async def score(self, text: str | None = None) -> float:
        reply = await self._request("score", text=text)
        return float(reply["score"])

    async def execute(self, code: str, *, max_output_tokens: int = 256) -> str:
        reply = await self._request("execute", code=code, max_output_tokens=max_output_tokens)
        return str(reply["text"])

    async def append_messages(self, messages: Sequence[Mapping[str, str]]) -> None:
        await self._request("append_messages", messages=[dict(message) for message in messages])

    async def append_environment_tokens(self, token_ids: Sequence[int]) -> None:
        await self._request("append_environment_tokens", token_ids=list(token_ids))

    async def _request(self, method: str, **arguments: Any) -> dict[str, Any]:
        async with self._turn:
            self._reply = asyncio.get_running_loop().create_future()
            await self._socket.send(type=method, episode=self._number, **arguments)
            reply = await self._reply
        if "error" in reply:
            raise self._error(reply["error"])
        self.context_token_ids += reply["added"]
        self.room_tokens = reply["room_tokens"]
        return reply

    def _error(self, error: dict[str, Any]) -> Exception:
        if error["kind"] == "out_of_room":
            out_of_room: Exception = self._api.OutOfRoom(error["wanted"], error["room"])
            return out_of_room
        failed: Exception = self._api.WorkflowFailed(error["kind"], error["message"])
        return failed

    def receive_reply(self, reply: dict[str, Any]) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)


async def main(common: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_unix_connection(common["socket"], limit=LINE_BYTES)
    socket = JsonLineSocket(reader, writer)
    await socket.send(type="hello", key=common["key"])
    api = _make_module("oolong.workflow", common["workflow_module"], "oolong/workflow.py")
    sys.modules["oolong"] = types.ModuleType("oolong")
    try:
        run = _make_module("workflow", common["source"], SOURCE_NAME).run
    except Exception as error:  # noqa: BLE001 - any exception of the file fails every episode
        await socket.send(type="unusable", message=_error_message(error))
        return
    await socket.send(type="ready")
    episodes: dict[int, Episode] = {}
    tasks: dict[int, asyncio.Task[None]] = {}
    while (message := await socket.read()) is not None:
        if "begin" in message:
            number = message["begin"]
            episodes[number] = Episode(socket, api, message)
            tasks[number] = asyncio.create_task(
                _run_episode(socket, api, number, run, episodes[number], common["options"])
            )
        elif "drop" in message:
            tasks.pop(message["drop"]).cancel()
            del episodes[message["drop"]]
        else:
            episodes[message["episode"]].receive_reply(message)


async def _run_episode(
    socket: JsonLineSocket,
    api: types.ModuleType,
    number: int,
    run: Any,
    episode: Episode,
    options: dict[str, Any],
) -> None:
    try:
        value = await run(episode, **options)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise TypeError(
                f"run returned {value!r:.80}; it must return the trajectory's value, a finite number"
            )
        await socket.send(type="done", episode=number, worth=float(value))
    except api.WorkflowFailed as error:
        await socket.send(type="failed", episode=number, kind=error.kind, message=_error_message(error))
    except Exception as error:  # noqa: BLE001 - any exception of a workflow fails its episode
        await socket.send(type="failed", episode=number, kind="user_code", message=_error_message(error))


def _make_module(name: str, source: str, file: str) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return module


def _error_message(error: BaseException) -> str:
    """The error, with the innermost line of the user's file in its traceback."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == SOURCE_NAME
    ]
    location = f"{SOURCE_NAME} line {lines[-1]}: " if lines else ""
    text = f"{location}{type(error).__name__}: {error}"[:2000]
    return text.encode(errors="replace").decode()  # a lone surrogate cannot be encoded


if __name__ == "__main__":
    asyncio.run(main(globals()["common"]))
