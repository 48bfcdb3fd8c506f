"""What runs in the sandbox of a workflow of users: its episodes, over the one socket that is bound there.

Standard library only; it knows nothing of the rest of this package. It is run with one name, `common`: socket and key,
the text of `oolong/workflow.py` (so that `from oolong.workflow import OutOfRoom` works inside), the uploaded source
and its options. One JSON object per line each way; what they mean is in `socket_messages`.
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
    """The socket, shared by all episodes."""

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
    """`oolong.workflow.Episode`, each call of which is asked of the worker."""

    def __init__(self, line: JsonLineSocket, names: types.ModuleType, begin: dict[str, Any]) -> None:
        self._line = line
        self._names = names
        self._number: int = begin["begin"]
        self._turn = asyncio.Lock()  # one call at a time, in the order in which they were made
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
        wanted = None if prompt_ids is None else list(prompt_ids)
        reply = await self._ask("sample", prompt_ids=wanted, max_new_tokens=max_new_tokens)
        return self._names.PolicyTurn(
            token_ids=reply["token_ids"], text=reply["text"], finish_reason=reply["finish_reason"]
        )

    async def score(self, text: str | None = None) -> float:
        reply = await self._ask("score", text=text)
        return float(reply["score"])

    async def execute(self, code: str, *, max_output_tokens: int = 256) -> str:
        reply = await self._ask("execute", code=code, max_output_tokens=max_output_tokens)
        return str(reply["text"])

    async def append_messages(self, messages: Sequence[Mapping[str, str]]) -> None:
        await self._ask("append_messages", messages=[dict(message) for message in messages])

    async def append_environment_tokens(self, token_ids: Sequence[int]) -> None:
        await self._ask("append_environment_tokens", token_ids=list(token_ids))

    async def _ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        async with self._turn:
            self._reply = asyncio.get_running_loop().create_future()
            await self._line.send(type=verb, episode=self._number, **arguments)
            reply = await self._reply
        if "error" in reply:
            raise self._error(reply["error"])
        self.context_token_ids += reply["added"]
        self.room_tokens = reply["room_tokens"]
        return reply

    def _error(self, error: dict[str, Any]) -> Exception:
        if error["kind"] == "out_of_room":
            out_of_room: Exception = self._names.OutOfRoom(error["wanted"], error["room"])
            return out_of_room
        failed: Exception = self._names.WorkflowFailed(error["kind"], error["message"])
        return failed

    def answered(self, reply: dict[str, Any]) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)


async def main(common: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_unix_connection(common["socket"], limit=LINE_BYTES)
    line = JsonLineSocket(reader, writer)
    await line.send(type="hello", key=common["key"])
    names = _make_module("oolong.workflow", common["workflow_module"], "oolong/workflow.py")
    sys.modules["oolong"] = types.ModuleType("oolong")
    try:
        run = _make_module("workflow", common["source"], SOURCE_NAME).run
    except Exception as error:  # noqa: BLE001 - whatever the file raises is the reason of every episode's failure
        await line.send(type="unusable", message=_said(error))
        return
    await line.send(type="ready")
    episodes: dict[int, Episode] = {}
    tasks: dict[int, asyncio.Task[None]] = {}
    while (message := await line.read()) is not None:
        if "begin" in message:
            number = message["begin"]
            episodes[number] = Episode(line, names, message)
            tasks[number] = asyncio.create_task(
                _play(line, names, number, run, episodes[number], common["options"])
            )
        elif "drop" in message:
            tasks.pop(message["drop"]).cancel()
            del episodes[message["drop"]]
        else:
            episodes[message["episode"]].answered(message)


async def _play(
    line: JsonLineSocket,
    names: types.ModuleType,
    number: int,
    run: Any,
    episode: Episode,
    options: dict[str, Any],
) -> None:
    try:
        worth = await run(episode, **options)
        if isinstance(worth, bool) or not isinstance(worth, int | float) or not math.isfinite(worth):
            raise TypeError(
                f"run returned {worth!r:.80}; it returns what the trajectory is worth, a finite number"
            )
        await line.send(type="done", episode=number, worth=float(worth))
    except names.WorkflowFailed as error:
        await line.send(type="failed", episode=number, kind=error.kind, message=_said(error))
    except Exception as error:  # noqa: BLE001 - whatever a workflow raises is the reason of its episode's failure
        await line.send(type="failed", episode=number, kind="user_code", message=_said(error))


def _make_module(name: str, source: str, file: str) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return module


def _said(error: BaseException) -> str:
    """The error and the last line of the user's file that it came through."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == SOURCE_NAME
    ]
    place = f"{SOURCE_NAME} line {lines[-1]}: " if lines else ""
    said = f"{place}{type(error).__name__}: {error}"[:2000]
    return said.encode(errors="replace").decode()  # half a character would break the line


if __name__ == "__main__":
    asyncio.run(main(globals()["common"]))
