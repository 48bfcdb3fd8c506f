"""A small server with the shape of SGLang's HTTP API, for tests without an engine. It samples nothing: a request's
tokens follow from its prompt, one every `token_seconds` for all running requests.

What it must get right is held by the conformance checks, which also run against the real server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

EOS = 257
CONTEXT = 1024


@dataclass
class FakeRequest:
    rid: str
    prompt: list[int]
    limit: int
    ignore_eos: bool
    temperature: float
    spread: int
    adapter: str | None = None
    reply: list[int] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    output: list[int] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    retractions: int = 0
    retracted: bool = False
    cached_tokens: int = 0
    finish: dict[str, Any] | None = None

    @property
    def length(self) -> int:
        """Tokens until the stop token: told by the prompt's second token."""
        if self.reply is not None:
            return len(self.reply) + 1
        return self.prompt[1] * 7 % self.spread + 5

    @property
    def next_token(self) -> int:
        if self.reply is None or len(self.output) >= len(self.reply):  # a probe asks for more than it says
            return 97 + len(self.output) % 26
        return self.reply[len(self.output)]


class FakeEngine:
    def __init__(
        self,
        *,
        token_seconds: float = 0.001,
        api_key: str = "key",
        spans: bool = True,
        places: int = 10_000,
        kv_tokens: int = 1_000_000,
    ) -> None:
        self.spans = spans  # False: as SGLang before 0.5.19, which has no version spans
        self.places = places  # requests decoded at once; the others wait
        self.kv_tokens = kv_tokens
        self.says_load = True  # False: as a server without /v1/loads
        self.adapters: dict[str, Path] = {}  # loaded, by name
        self.unloaded: list[str] = []
        self._cache: list[tuple[str | None, list[int]]] = []  # adapter and input, until the next flush
        self.token_seconds = token_seconds
        self.api_key = api_key
        self.version = "boot"
        self.loads: list[str] = []
        self.flushed: list[bool] = []  # of each load
        self.paused: str | None = None
        self.requests: dict[str, FakeRequest] = {}
        self.seen_inputs: list[list[int]] = []
        self.seen_rids: list[str] = []
        self.seen_temperatures: dict[str, float] = {}  # by request id
        self.seen_seeds: dict[str, int | None] = {}
        self.most_running = 0
        self.fail_loads = False
        self.load_delay = 0.0
        self.reply_to: Callable[[list[int]], list[int]] | None = None  # else letters in their order
        self.spread = 40  # lengths are 5 to spread + 4 tokens
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._app = web.Application(middlewares=[self._authorise])
        for path, handler in (
            ("generate", self._generate),
            ("pause_generation", self._pause),
            ("continue_generation", self._continue),
            ("update_weights_from_disk", self._update),
            ("load_lora_adapter", self._load_adapter),
            ("unload_lora_adapter", self._unload_adapter),
            ("abort_request", self._abort),
            ("flush_cache", self._flush),
        ):
            self._app.router.add_post(f"/{path}", handler)
        self._app.router.add_get("/model_info", self._model_info)
        self._app.router.add_get("/v1/loads", self._loads)

    async def serve_for_ever(self, port: int) -> None:
        """As the engine's own process: until it is killed."""
        self._runner = web.AppRunner(self._app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        await self._step_for_ever()

    async def __aenter__(self) -> FakeEngine:
        self._runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port: int = self._runner.addresses[0][1]
        self._stepping = asyncio.create_task(self._step_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def die(self) -> None:
        """Break every connection, as a killed server does."""
        self._stepping.cancel()
        for request in self.requests.values():
            request.done.set()
        await self._runner.cleanup()

    @property
    def running(self) -> list[FakeRequest]:
        return [request for request in self.requests.values() if request.finish is None]

    async def _step_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.token_seconds)
            if self.paused is None:
                self._step()

    def _step(self) -> None:
        self.most_running = max(self.most_running, len(self.running))
        for request in self.running[: self.places]:
            request.retracted = False
            if request.limit == 0:  # a prefill alone
                self._finish(request, {"type": "length", "length": 0})
                continue
            if not self.may_decode(request):
                continue
            at_end = len(request.output) + 1 >= request.length and not request.ignore_eos
            request.output.append(EOS if at_end else request.next_token)
            request.versions.append(self.version)
            if at_end:
                self._finish(request, {"type": "stop", "matched": EOS})
            elif len(request.output) >= request.limit:
                self._finish(request, {"type": "length", "length": request.limit})

    def may_decode(self, request: FakeRequest) -> bool:
        """Overridden where a test holds requests in the middle."""
        return True

    def _finish(self, request: FakeRequest, reason: dict[str, Any]) -> None:
        request.finish = reason
        request.done.set()

    @web.middleware
    async def _authorise(self, call: web.Request, handler: Any) -> web.StreamResponse:
        if call.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        response: web.StreamResponse = await handler(call)
        return response

    async def _generate(self, call: web.Request) -> web.Response:
        body = await call.json()
        self.seen_inputs.append(body["input_ids"])
        self.seen_rids.append(body["rid"])
        await self._may_start.wait()
        if body["rid"] in self.requests:
            return web.json_response(
                {"error": {"message": f"Duplicate request ID {body['rid']}"}}, status=400
            )
        if len(body["input_ids"]) + body["sampling_params"]["max_new_tokens"] > CONTEXT:
            return web.json_response({"error": {"message": "longer than the context"}}, status=400)
        adapter = body.get("lora_path")
        if adapter is not None and adapter not in self.adapters:
            message = f"The following requested LoRA adapters are not loaded: {adapter}"
            return web.json_response({"error": {"message": message}}, status=400)
        sampling = body["sampling_params"]
        self.seen_temperatures[body["rid"]] = sampling["temperature"]
        self.seen_seeds[body["rid"]] = sampling.get("sampling_seed")
        request = FakeRequest(
            rid=body["rid"],
            prompt=body["input_ids"],
            limit=sampling["max_new_tokens"],
            ignore_eos=sampling["ignore_eos"],
            temperature=sampling["temperature"],
            spread=self.spread,
            adapter=adapter,
            reply=self.reply_to(body["input_ids"]) if self.reply_to is not None else None,
        )
        request.cached_tokens = self._cached(request)
        self._cache.append((request.adapter, request.prompt))
        self.requests[request.rid] = request
        try:
            await request.done.wait()
        finally:
            del self.requests[request.rid]
        if request.finish is None and call.transport is not None:
            call.transport.close()
            raise ConnectionResetError
        return web.json_response(_reply(request, spans=self.spans))

    def _cached(self, request: FakeRequest) -> int:
        """The longest prefix seen since the last flush, under the same adapter; the last token is always computed, for
        its logits."""
        seen = [prompt for adapter, prompt in self._cache if adapter == request.adapter]
        return max((_common_prefix(request.prompt[:-1], one) for one in seen), default=0)

    async def _pause(self, call: web.Request) -> web.Response:
        mode = (await call.json()).get("mode", "abort")
        if mode not in ("abort", "retract", "in_place"):
            return web.json_response({"error": {"message": f"mode {mode}"}}, status=400)
        if self.paused is None:
            for request in self.running:
                if mode == "abort":
                    self._finish(request, _aborted("Aborted"))
                elif mode == "retract" and request.output:
                    request.retractions += 1
                    request.retracted = True
        self.paused = mode
        self._may_start.clear()
        return web.json_response({"status": "ok", "message": "Generation paused successfully."})

    async def _continue(self, call: web.Request) -> web.Response:
        self.paused = None
        self._may_start.set()
        return web.json_response({"status": "ok", "message": "Generation continued successfully."})

    async def _update(self, call: web.Request) -> web.Response:
        body = await call.json()
        directory = Path(body["model_path"])
        if self.fail_loads or not (directory / "config.json").is_file():
            return web.json_response({"success": False, "message": f"no weights in {directory}"}, status=400)
        await asyncio.sleep(self.load_delay)
        self.version = body["weight_version"]
        self.loads.append(self.version)
        self.flushed.append(body["flush_cache"])
        if body["flush_cache"]:
            self._cache.clear()
        return web.json_response({"success": True, "message": "Succeeded to update model weights."})

    async def _load_adapter(self, call: web.Request) -> web.Response:
        body = await call.json()
        name, directory = body["lora_name"], Path(body["lora_path"])
        if self.fail_loads or name in self.adapters or not (directory / "adapter_config.json").is_file():
            return web.json_response({"success": False, "error_message": f"{name} cannot load"}, status=400)
        await asyncio.sleep(self.load_delay)
        self.adapters[name] = directory
        return web.json_response({"success": True})

    async def _unload_adapter(self, call: web.Request) -> web.Response:
        name = (await call.json())["lora_name"]
        if name not in self.adapters:
            return web.json_response({"success": False, "error_message": f"no {name}"}, status=400)
        del self.adapters[name]
        while any(request.adapter == name for request in self.requests.values()):
            await asyncio.sleep(self.token_seconds)
        self.unloaded.append(name)
        return web.json_response({"success": True})

    async def _abort(self, call: web.Request) -> web.Response:
        body = await call.json()
        for request in self.running:
            if body.get("abort_all") or request.rid == body.get("rid"):
                self._finish(request, _aborted("Abort in waiting queue" if request.retracted else "Aborted"))
        return web.Response()

    async def _flush(self, call: web.Request) -> web.Response:
        if self.running and self.paused != "retract":
            return web.Response(status=400, text="Flush cache failed.")
        self._cache.clear()
        return web.Response(text="Cache flushed.")

    async def _model_info(self, call: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version, "model_path": "/model"})

    async def _loads(self, call: web.Request) -> web.Response:
        if not self.says_load:
            return web.Response(status=404)
        running = self.running[: self.places]
        load = {
            "num_running_reqs": len(running),
            "num_waiting_reqs": len(self.running) - len(running),
            "token_usage": sum(len(r.prompt) + len(r.output) for r in running) / self.kv_tokens,
        }
        return web.json_response({"loads": [load]})


def _common_prefix(one: list[int], other: list[int]) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


def _aborted(message: str) -> dict[str, Any]:
    return {"type": "abort", "message": message, "status_code": None, "err_type": None}


def _reply(request: FakeRequest, *, spans: bool) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    for position, version in enumerate(request.versions):
        if runs and runs[-1]["version"] == version:
            runs[-1]["end"] = position + 1
        else:
            runs.append({"version": version, "start": position, "end": position + 1})
    meta: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": request.finish,
        "completion_tokens": len(request.output),
        "weight_version": request.versions[-1] if request.versions else "boot",
        "output_token_logprobs": [[-0.5, token, None] for token in request.output],
    }
    if spans:
        meta["weight_versions"] = runs
    if request.finish is None or request.finish.get("message") != "Abort in waiting queue":
        meta |= {
            "prompt_tokens": len(request.prompt),
            "cached_tokens": request.cached_tokens,
            "num_retractions": request.retractions,
        }
    return {"text": "", "output_ids": request.output, "meta_info": json.loads(json.dumps(meta))}
