"""A typed client of SGLang's own HTTP API: token ids in, token ids with log-probabilities and versions out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import msgspec

from gpu_agents.rollout.engines.errors import (
    EngineError,
    EngineHttpError,
    EngineTooOld,
    EngineUnavailable,
    UnsafeEngineRequest,
)

PauseMode = Literal["retract", "abort", "in_place"]
Finish = Literal["stop", "length", "abort"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    max_new_tokens: int
    temperature: float  # 0 is greedy
    ignore_eos: bool = False
    seed: int | None = None  # an engine without deterministic inference ignores it


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What one request returned; after an abort, what it had so far."""

    token_ids: list[int]  # [T] the stop token included
    logprobs: list[float]  # [T] of logits / temperature; greedy: of the logits
    versions: list[int]  # [T] weight version that sampled each token
    finish: Finish
    retractions: int  # times the engine took it off and prefilled it again
    cached_tokens: int  # of the input, found in the prefix cache; 0 where the reply does not say


@dataclass(frozen=True, kw_only=True)
class Prefill:
    cached_tokens: int  # of the input, already there


@dataclass(frozen=True, kw_only=True)
class ModelLimits:
    """Bounds that SGLang does not check itself: an id outside the vocabulary kills the whole server."""

    vocabulary: int
    context_tokens: int

    def check(self, input_ids: list[int], *, max_new_tokens: int) -> None:
        if not input_ids:
            raise UnsafeEngineRequest("the prompt has no tokens")
        for position, token in enumerate(input_ids):
            if type(token) is not int or not 0 <= token < self.vocabulary:
                raise UnsafeEngineRequest(
                    f"input id {token!r} at position {position} is not an integer in [0, {self.vocabulary})"
                )
        if len(input_ids) + max_new_tokens > self.context_tokens:
            raise UnsafeEngineRequest(
                f"{len(input_ids)} input tokens and {max_new_tokens} new ones are over the context of "
                f"{self.context_tokens}"
            )


class _Span(msgspec.Struct):
    version: str
    start: int
    end: int


class _FinishReason(msgspec.Struct):
    type: Finish
    message: str | None = None


class _Meta(msgspec.Struct):
    """Of an aborted queued request num_retractions and cached_tokens are missing; before 0.5.19 the spans are."""

    finish_reason: _FinishReason
    weight_version: str | None = None
    weight_versions: list[_Span] | None = None
    num_retractions: int = 0
    cached_tokens: int = 0
    output_token_logprobs: list[tuple[float, int, str | None]] = []


class _Generated(msgspec.Struct):
    output_ids: list[int]
    meta_info: _Meta


class _Prefilled(msgspec.Struct):
    meta_info: _Meta


@dataclass(frozen=True, kw_only=True)
class EngineLoad:
    """What an engine says of itself at one moment."""

    running_requests: int
    waiting_requests: int  # taken in, without a place in the batch yet
    kv_cache_frac: float  # of the KV cache, in use by running requests


class _Load(msgspec.Struct):
    num_running_reqs: int
    num_waiting_reqs: int
    token_usage: float


class _Loads(msgspec.Struct):
    """One entry per data-parallel rank of the engine."""

    loads: list[_Load]


class _ModelInfo(msgspec.Struct):
    weight_version: str
    model_path: str


_decode_generated = msgspec.json.Decoder(_Generated).decode
_decode_prefilled = msgspec.json.Decoder(_Prefilled).decode
_decode_loads = msgspec.json.Decoder(_Loads).decode
_decode_model_info = msgspec.json.Decoder(_ModelInfo).decode


class EngineClient:
    def __init__(self, port: int, api_key: str, limits: ModelLimits) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._limits = limits
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"},
            # Shorter than the server's own keep-alive, so that it never closes a connection under a request.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )

    async def close(self) -> None:
        await self._http.close()

    async def generate(
        self, input_ids: list[int], sampling: Sampling, *, rid: str, only_version: int | None = None
    ) -> Generation:
        """One completion. Raises UnsafeEngineRequest before anything is sent, EngineUnavailable if the engine dies.

        `only_version` is the caller's word that no load happens while the request runs: every token is of that
        version. A server that reports spans is held to it; one that does not needs it. Raises EngineTooOld.
        """
        self._limits.check(input_ids, max_new_tokens=sampling.max_new_tokens)
        body = {
            "rid": rid,
            "input_ids": input_ids,
            "sampling_params": {
                "max_new_tokens": sampling.max_new_tokens,
                "temperature": sampling.temperature,
                "ignore_eos": sampling.ignore_eos,
                **({} if sampling.seed is None else {"sampling_seed": sampling.seed}),
            },
            "return_logprob": True,
            "logprob_start_len": -1,
            "return_text_in_logprobs": False,
        }
        reply = _decode_generated(await self._post("generate", body))
        return _generation(reply, rid=rid, only_version=only_version)

    async def prefill(self, input_ids: list[int], *, rid: str) -> Prefill:
        """Compute the input's keys and values, and sample nothing: who asks for the same prefix next finds it."""
        self._limits.check(input_ids, max_new_tokens=0)
        body = {
            "rid": rid,
            "input_ids": input_ids,
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0, "ignore_eos": True},
        }
        return Prefill(
            cached_tokens=_decode_prefilled(await self._post("generate", body)).meta_info.cached_tokens
        )

    async def pause(self, mode: PauseMode) -> None:
        await self._post("pause_generation", {"mode": mode}, timeout=60)

    async def resume(self) -> None:
        await self._post("continue_generation", {}, timeout=60)

    async def update_weights(self, directory: str, *, version: int, flush_cache: bool) -> None:
        await self._post(
            "update_weights_from_disk",
            {"model_path": directory, "weight_version": str(version), "flush_cache": flush_cache},
            timeout=600,
        )

    async def abort(self, rid: str) -> None:
        await self._post("abort_request", {"rid": rid}, timeout=30)

    async def abort_all(self) -> None:
        await self._post("abort_request", {"abort_all": True}, timeout=30)

    async def flush_cache(self) -> None:
        await self._post("flush_cache", {}, timeout=30)

    async def weight_version(self, *, timeout: float = 10.0) -> str:
        """The label of the loaded weights. Answers while paused, unlike /health: this is the sign of life."""
        return _decode_model_info(await self._call("GET", "model_info", None, timeout)).weight_version

    async def load(self) -> EngineLoad | None:
        """How busy the engine is; None from a server that does not say (it has no /v1/loads)."""
        try:
            reply = await self._call("GET", "v1/loads?include=core", None, 10.0)
        except EngineHttpError as error:
            if error.status == 404:
                return None
            raise
        ranks = _decode_loads(reply).loads
        return EngineLoad(
            running_requests=sum(rank.num_running_reqs for rank in ranks),
            waiting_requests=sum(rank.num_waiting_reqs for rank in ranks),
            kv_cache_frac=max(rank.token_usage for rank in ranks),
        )

    async def _post(self, path: str, body: dict[str, Any], timeout: float | None = None) -> bytes:
        return await self._call("POST", path, msgspec.json.encode(body), timeout)

    async def _call(self, method: str, path: str, body: bytes | None, timeout: float | None) -> bytes:
        try:
            async with self._http.request(
                method,
                f"{self._url}/{path}",
                data=body,
                timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=5),
            ) as response:
                content = await response.read()
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as error:
            raise EngineUnavailable(f"/{path} of the engine: {type(error).__name__}: {error}") from error
        if response.status != 200:
            raise EngineHttpError(path, response.status, content[:500].decode(errors="replace"))
        return content


def _generation(reply: _Generated, *, rid: str, only_version: int | None) -> Generation:
    tokens = len(reply.output_ids)
    meta = reply.meta_info
    if len(meta.output_token_logprobs) != tokens:
        raise EngineError(f"request {rid}: {len(meta.output_token_logprobs)} logprobs for {tokens} tokens")
    logprobs = [entry[0] for entry in meta.output_token_logprobs]
    if not all(math.isfinite(logprob) for logprob in logprobs):
        raise EngineError(f"request {rid}: the engine returned a log-probability that is not finite")
    return Generation(
        token_ids=reply.output_ids,
        logprobs=logprobs,
        versions=_versions(meta, tokens=tokens, rid=rid, only=only_version),
        finish=meta.finish_reason.type,
        retractions=meta.num_retractions,
        cached_tokens=meta.cached_tokens,
    )


def _versions(meta: _Meta, *, tokens: int, rid: str, only: int | None) -> list[int]:
    """Version of each token: from the spans, or, on a server without them, the one that the caller vouches for."""
    if not tokens:
        return []
    if meta.weight_versions is None:
        if only is None:
            raise EngineTooOld(
                "the engine reports no version spans (SGLang before 0.5.19), and a retracted request may have "
                "tokens of several versions; set rollout.interruption: abort"
            )
        if meta.weight_version != str(only):
            raise EngineError(
                f"request {rid}: sampled by weights {meta.weight_version!r}, not by version {only}"
            )
        return [only] * tokens
    versions = _of_spans(meta.weight_versions, tokens=tokens, rid=rid)
    if only is not None and set(versions) != {only}:
        raise EngineError(f"request {rid}: sampled by versions {sorted(set(versions))}, not by {only} alone")
    return versions


def _of_spans(spans: list[_Span], *, tokens: int, rid: str) -> list[int]:
    """Per-token versions from half-open spans over the output."""
    versions: list[int] = []
    for span in spans:
        if not span.version.isdigit() and span.end > span.start:
            raise EngineError(
                f"request {rid}: tokens were sampled by weights {span.version!r}, before any load"
            )
        versions += [int(span.version)] * (span.end - span.start) if span.end > span.start else []
    if len(versions) != tokens:
        raise EngineError(f"request {rid}: version spans {spans} do not cover {tokens} tokens")
    return versions
