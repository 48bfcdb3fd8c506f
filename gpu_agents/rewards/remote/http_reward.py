"""The reward `http`: completions that wait together go to the service in one request."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import Any

from gpu_agents.rewards.remote.endpoint import RemoteContext, RemoteEndpoint
from gpu_agents.rewards.remote.http_protocol import read_answer, request_document
from gpu_agents.rewards.reward import Completion, Score, ScoringError, VerifierFailed, read_options
from oolong.contracts.run_spec.remote_rewards import HttpOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Waiting:
    completion: Completion
    score: asyncio.Future[Score]


class HttpReward:
    """`concurrency` senders take what waits, at most `batch_size` each, as soon as they are free."""

    def __init__(self, options: dict[str, Any], context: RemoteContext, *, timeout_seconds: float) -> None:
        read = read_options(HttpOptions, options, reward="http")
        self._endpoint = RemoteEndpoint(read, context, reward="http", timeout_seconds=timeout_seconds)
        self._batch_size, self._concurrency = read.batch_size, read.concurrency
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._senders: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._senders = [asyncio.create_task(self._send_batches()) for _ in range(self._concurrency)]

    async def score(self, completion: Completion) -> Score:
        waiting = _Waiting(completion, asyncio.get_running_loop().create_future())
        self._waiting.put_nowait(waiting)
        return await waiting.score

    async def close(self) -> None:
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        await self._endpoint.close()

    async def _send_batches(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._batch_size and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await self._score_batch([one for one in batch if not one.score.done()])

    async def _score_batch(self, batch: list[_Waiting]) -> None:
        """Settle each future of the batch, whatever happens."""
        if not batch:
            return  # all were given up while they waited
        by_id = {uuid.uuid4().hex: one for one in batch}  # the same when it is sent again
        items = {identity: one.completion for identity, one in by_id.items()}
        try:
            body = await self._endpoint.post(request_document(items))
            results: dict[str, Score | ScoringError] = read_answer(body, items)
        except ScoringError as error:
            results = {identity: ScoringError(str(error)) for identity in items}
        except asyncio.CancelledError:
            for one in batch:
                one.score.cancel()
            raise
        except Exception as error:
            log.exception("a batch of the http reward failed")
            for one in batch:
                if not one.score.done():
                    one.score.set_exception(VerifierFailed(f"{type(error).__name__}: {error}"))
            return
        for identity, one in by_id.items():
            result = results[identity]
            if one.score.done():
                continue  # given up while the request was out
            if isinstance(result, Score):
                one.score.set_result(result)
            else:
                one.score.set_exception(result)
