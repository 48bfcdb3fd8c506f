"""The reward `judge`: a language model behind an OpenAI-compatible chat endpoint scores the completion."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from statistics import fmean
from typing import Any

from gpu_agents.rewards.pool import ChildPool
from gpu_agents.rewards.remote.endpoint import RemoteContext, RemoteEndpoint
from gpu_agents.rewards.remote.judge_text import build_parser, messages_of, parse_score, read_reply
from gpu_agents.rewards.reward import Completion, Score, ScoringError, VerifierFailed, read_options
from oolong.contracts.run_spec.remote_rewards import JudgeOptions
from oolong.untrusted import clean_text

CACHED = 10_000  # judgements
PARSE_SECONDS = 5.0
TEXT_CHARACTERS = 4000  # of all replies to one completion
EXCERPT_CHARACTERS = 300


class Judge:
    def __init__(self, options: dict[str, Any], context: RemoteContext, *, timeout_seconds: float) -> None:
        self._options = read_options(JudgeOptions, options, reward="judge")
        self._endpoint = RemoteEndpoint(
            self._options, context, reward="judge", timeout_seconds=timeout_seconds
        )
        self._counts, self._use_cache = context.counts, context.use_cache
        self._judgements: OrderedDict[str, asyncio.Task[Score]] = (
            OrderedDict()
        )  # by messages, oldest use first
        self._parsers = (
            ChildPool(build_parser, options, size=1, timeout_seconds=PARSE_SECONDS)
            if self._options.parse == "regex"
            else None
        )

    async def start(self) -> None:
        if self._parsers is not None:
            await self._parsers.start()

    async def score(self, completion: Completion) -> Score:
        messages = messages_of(self._options, completion)
        if not self._use_cache:
            return await self._judge(messages, completion.row)
        key = hashlib.sha256(json.dumps(messages).encode()).hexdigest()
        judgement = self._judgements.get(key)
        if judgement is None:
            judgement = asyncio.create_task(self._judge(messages, completion.row))
            self._judgements[key] = judgement
            judgement.add_done_callback(lambda done: self._forget_failed(key, done))
            if len(self._judgements) > CACHED:
                self._judgements.popitem(last=False)
        else:
            self._counts.judge_cache_hits += 1
            self._judgements.move_to_end(key)
        return await asyncio.shield(judgement)

    async def close(self) -> None:
        for judgement in tuple(self._judgements.values()):
            judgement.cancel()
        await asyncio.gather(*self._judgements.values(), return_exceptions=True)
        await self._endpoint.close()
        if self._parsers is not None:
            await self._parsers.close()

    def _forget_failed(self, key: str, judgement: asyncio.Task[Score]) -> None:
        if judgement.cancelled() or judgement.exception() is not None:
            self._judgements.pop(key, None)

    async def _judge(self, messages: list[dict[str, str]], row: int) -> Score:
        options = self._options
        votes = await asyncio.gather(*(self._vote(messages, row) for _ in range(options.votes)))
        given = fmean(value for value, _ in votes)
        value = (given - options.low) / (options.high - options.low) if options.scale == "unit" else given
        parts = {"judge_score": given}
        if options.votes > 1:
            parts |= {f"vote_{number}": value for number, (value, _) in enumerate(votes, start=1)}
        text = "\n\n---\n\n".join(reply for _, reply in votes)
        return Score(value=value, parts=parts, text=clean_text(text, max_characters=TEXT_CHARACTERS))

    async def _vote(self, messages: list[dict[str, str]], row: int) -> tuple[float, str]:
        options = self._options
        body = await self._endpoint.post(
            {
                "model": options.model,
                "messages": messages,
                "max_tokens": options.max_tokens,
                "temperature": options.temperature,
            }
        )
        reply, finish_reason, tokens = read_reply(body)
        self._counts.judge_input_tokens += tokens.get("prompt_tokens", 0)
        self._counts.judge_output_tokens += tokens.get("completion_tokens", 0)
        try:
            if finish_reason == "length":
                raise ScoringError(f"the reply is cut off at max_tokens={options.max_tokens}")
            return await self._parse(reply), reply
        except ScoringError as error:
            self._counts.unparsable += 1
            self._counts.examples.append(
                {
                    "row": row,
                    "error": clean_text(str(error)),
                    "reply": clean_text(reply, max_characters=TEXT_CHARACTERS),
                }
            )
            excerpt = clean_text(reply, max_characters=EXCERPT_CHARACTERS)
            raise ScoringError(f"the judge's reply has no score: {error}; it says: {excerpt}") from error

    async def _parse(self, reply: str) -> float:
        if self._parsers is None:
            return parse_score(reply, self._options)
        try:
            wrapped = Completion(prompt="", text=reply, answer="", finish_reason="stop")
            return (await self._parsers.score(wrapped)).value
        except VerifierFailed as error:
            raise ScoringError(f"the pattern: {error}") from error
