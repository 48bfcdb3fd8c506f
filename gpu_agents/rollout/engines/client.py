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

BOOT_VERSION = "boot"  # label of the weights of the boot, which are sampled from only under an adapter
ADAPTER_SECONDS = 120.0  # of loading or unloading one

PauseMode = Literal["retract", "abort", "in_place"]
Finish = Literal["stop", "length", "abort"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    max_new_tokens: int
    temperature: float  # 0 is greedy
    ignore_eos: bool = False
    seed: int | None = None  # an engine without deterministic inference ignores it


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A loaded LoRA adapter: a policy version on the weights that the engine booted with."""

    name: str  # unique per load
    version: int


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The result of one request; after an abort, its tokens so far."""

    token_ids: list[int]  # [T] the stop token included
    logprobs: list[float]  # [T] of logits / temperature; greedy: of the logits
    versions: list[int]  # [T] weight version that sampled each token
    finish: Finish
    retractions: int  # times the engine evicted the request and prefilled it again
    cached_tokens: int  # input tokens found in the prefix cache; 0 if not reported


@dataclass(frozen=True, kw_only=True)
class Prefill:
    cached_tokens: int  # input tokens found in the prefix cache


@dataclass(frozen=True, kw_only=True)
class ModelLimits:
    """Bounds that SGLang does not check itself: an id outside the vocabulary crashes the server."""

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
                f"{len(input_ids)} input tokens and {max_new_tokens} new tokens exceed the context of "
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
    """Aborted queued requests lack num_retractions and cached_tokens; servers before 0.5.19 lack the spans."""

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
    """An engine's reported load."""

    running_requests: int
    waiting_requests: int  # queued, not in the batch yet
    kv_cache_frac: float  # fraction of the KV cache used by running requests


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
            # Shorter than the server's keep-alive, so that the server never closes a connection in use.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )

    async def close(self) -> None:
        await self._http.close()

    async def generate(
        self,
        input_ids: list[int],
        sampling: Sampling,
        *,
        rid: str,
        only_version: int | None = None,
        adapter: Adapter | None = None,
    ) -> Generation:
        """Sample one completion. Raises UnsafeEngineRequest before sending, EngineUnavailable if the engine crashes.

        `only_version`: the caller guarantees that no load happens during the request, so every token has this
        version. Spans are verified against it; a server without spans requires it. Raises EngineTooOld.
        With `adapter`, one adapter samples the whole request, and every token has its version.
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
            **_lora_path(adapter),
        }
        reply = _decode_generated(await self._post("generate", body))
        return _generation(reply, rid=rid, only_version=only_version, adapter=adapter)

    async def prefill(self, input_ids: list[int], *, rid: str, adapter: Adapter | None = None) -> Prefill:
        """Compute the input's keys and values without sampling, so that later requests hit the prefix cache."""
        self._limits.check(input_ids, max_new_tokens=0)
        body = {
            "rid": rid,
            "input_ids": input_ids,
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0, "ignore_eos": True},
            **_lora_path(adapter),
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

    async def load_adapter(self, adapter: Adapter, directory: str) -> None:
        """Load an adapter beside the running requests, which keep theirs."""
        body = {"lora_name": adapter.name, "lora_path": directory}
        await self._post("load_lora_adapter", body, timeout=ADAPTER_SECONDS)

    async def unload_adapter(self, adapter: Adapter) -> None:
        """Unload an adapter. The engine answers after the last request of the adapter has ended."""
        await self._post("unload_lora_adapter", {"lora_name": adapter.name}, timeout=ADAPTER_SECONDS)

    async def abort(self, rid: str) -> None:
        await self._post("abort_request", {"rid": rid}, timeout=30)

    async def abort_all(self) -> None:
        await self._post("abort_request", {"abort_all": True}, timeout=30)

    async def flush_cache(self) -> None:
        await self._post("flush_cache", {}, timeout=30)

    async def weight_version(self, *, timeout: float = 10.0) -> str:
        """The label of the loaded weights. Used as liveness probe: it answers while paused, unlike /health."""
        return _decode_model_info(await self._call("GET", "model_info", None, timeout)).weight_version

    async def load(self) -> EngineLoad | None:
        """The engine's load; None from a server without /v1/loads."""
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


def _lora_path(adapter: Adapter | None) -> dict[str, str]:
    return {} if adapter is None else {"lora_path": adapter.name}


def _generation(
    reply: _Generated, *, rid: str, only_version: int | None, adapter: Adapter | None
) -> Generation:
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
        versions=_versions(meta, tokens=tokens, rid=rid, only=only_version)
        if adapter is None
        else _versions_of_adapter(meta, adapter, tokens=tokens, rid=rid),
        finish=meta.finish_reason.type,
        retractions=meta.num_retractions,
        cached_tokens=meta.cached_tokens,
    )


def _versions(meta: _Meta, *, tokens: int, rid: str, only: int | None) -> list[int]:
    """Version of each token: from the spans, or, on a server without spans, the caller's `only_version`."""
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


def _versions_of_adapter(meta: _Meta, adapter: Adapter, *, tokens: int, rid: str) -> list[int]:
    """The adapter's version for each token. An adapter is a version only on the weights of the boot."""
    spans = meta.weight_versions or []
    labels = {span.version for span in spans if span.end > span.start} or {str(meta.weight_version)}
    if labels != {BOOT_VERSION}:
        raise EngineError(f"request {rid}: {adapter.name} was sampled on the weights {sorted(labels)}")
    return [adapter.version] * tokens


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
