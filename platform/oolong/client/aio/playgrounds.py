"""Chats with models on free slots, as the client offers them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.async_primitives import sleep
from oolong.client.request_spec import delete, get, page, post

ASK_AGAIN_SECONDS = 1.0


class AsyncPlaygrounds(AsyncResource):
    def list(self) -> AsyncIterator[models.Playground]:
        return self._pages(page("playgrounds", models.Playground))

    async def get(self, playground_id: str) -> models.Playground:
        return await self._send(get("playgrounds/{}", models.Playground, playground_id))

    async def open(
        self,
        *chat_with: Mapping[str, str],
        idle_seconds: int = 600,
        reward: Mapping[str, Any] | None = None,
    ) -> models.Playground:
        """One model or two: `{"checkpoint": "prod"}`, `{"base_model": "tiny"}`. They wait for slots that no run needs.

        With `reward` (as in a RunSpec) replies can be scored.
        """
        sides = [dict(model) for model in chat_with]
        body = {"models": sides, "idle_seconds": idle_seconds, "reward": reward}
        return await self._send(post("playgrounds", models.Playground, body=body))

    async def close(self, playground_id: str) -> None:
        """Give its slots back."""
        await self._send(delete("playgrounds/{}", playground_id))

    async def wait_ready(self, playground_id: str, *, timeout_seconds: float = 600.0) -> models.Playground:
        """Until a side answers, or all have ended. Raises TimeoutError, saying why it waits."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = await self.get(playground_id)
            if not found.open or all(side.ready for side in found.sides):
                return found
            if time.monotonic() > deadline:
                if any(side.ready for side in found.sides):
                    return found
                why = "; ".join(
                    f"{side.model.name}: {side.pending_reason or side.status}" for side in found.sides
                )
                raise TimeoutError(f"playground {playground_id} does not answer yet: {why}")
            await sleep(ASK_AGAIN_SECONDS)

    async def chat(
        self, run_id: str, messages: Sequence[Mapping[str, str]], **options: Any
    ) -> AsyncIterator[str]:
        """The reply of one side, piece by piece. `options` are OpenAI's: temperature, max_tokens, stop, seed."""
        body = {"messages": [dict(message) for message in messages], "stream": True, **options}
        request = post("runs/{}/playground/chat/completions", bytes, run_id, body=body, keyed=False)
        async with aclosing(self._connection.lines(request, {"Accept": "text/event-stream"})) as lines:
            async for line in lines:
                piece = _piece(line)
                if piece:
                    yield piece

    async def score(
        self, run_id: str, messages: Sequence[Mapping[str, str]], completion: str, *, answer: str = ""
    ) -> models.ReplyScore:
        """What the playground's reward gives the reply."""
        chat = [dict(message) for message in messages]
        body = {"messages": chat, "completion": completion, "answer": answer}
        request = post("runs/{}/playground/score", models.ReplyScore, run_id, body=body, keyed=False)
        return await self._send(request)


def _piece(line: str) -> str:
    if not line.startswith("data:") or line.removeprefix("data:").strip() == "[DONE]":
        return ""
    document = json.loads(line.removeprefix("data:"))
    if "error" in document:
        raise ConnectionError(f"the reply broke off: {document['error'].get('message')}")
    choices = document.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")
