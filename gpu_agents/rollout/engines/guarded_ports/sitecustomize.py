"""Runs at the start of every Python process of an engine: its ports answer nobody without the engine's key.

SGLang joins a process group also when it is alone, and torch's store for that listens on every interface and asks
nobody for a credential. Neither has a setting for the address. Here a process that is alone keeps its store in memory,
and the store of several listens on loopback: it takes a socket that listens already.

SGLang's own check of the key lets health and metrics paths, OPTIONS and every WebSocket through. Jobs of other
attempts share the loopback interface, so here each request needs the key, and no WebSocket is accepted.

It also fixes one bug of the pinned SGLang: a request that is aborted before it runs is counted as a user of its LoRA
adapter for ever, so unloading the adapter, and each load after that, never returns.

On a CPU the engine's processes are forked instead of spawned: each would import SGLang and torch again, which takes
more than starting the engine does otherwise. With a GPU a fork could inherit a CUDA context, so there they are spawned.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any


def listen_on_loopback(rendezvous: ModuleType) -> None:
    store_class, make_store = rendezvous.TCPStore, rendezvous._create_c10d_store

    def store_of(
        hostname: str, port: int, rank: int, world_size: int, *arguments: Any, **options: Any
    ) -> Any:
        if world_size == 1:
            from torch.distributed import HashStore

            return HashStore()
        return make_store(hostname, port, rank, world_size, *arguments, **options)

    def store(host_name: str, port: int, *arguments: Any, **options: Any) -> Any:
        if options.get("is_master"):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
            port = listener.getsockname()[1]
            options["master_listen_fd"] = listener.detach()
        return store_class(host_name, port, *arguments, **options)

    rendezvous.TCPStore, rendezvous._create_c10d_store = store, store_of  # type: ignore[attr-defined]


class NoWebSockets:
    """ASGI middleware that closes each WebSocket before it is accepted."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.close", "code": 1008})


def require_key(auth: ModuleType) -> None:
    decide, add = auth.decide_request_auth, auth.add_api_key_middleware

    def decide_for_every_path(*, authorization_header: str | None, **arguments: Any) -> Any:
        if authorization_header is not None and not authorization_header.isascii():
            authorization_header = None  # SGLang's comparison would raise
        return decide(
            authorization_header=authorization_header, **arguments | {"method": "POST", "path": "/"}
        )

    def add_middleware(app: Any, **keys: Any) -> None:
        add(app, **keys)
        app.add_middleware(NoWebSockets)

    auth.decide_request_auth, auth.add_api_key_middleware = decide_for_every_path, add_middleware  # type: ignore[attr-defined]


def release_adapters_of_aborted_requests(tokenizer_manager: ModuleType) -> None:
    manager_class = tokenizer_manager.TokenizerManager
    handle = manager_class._handle_abort_req

    def handle_and_release(manager: Any, abort: Any) -> None:
        state = manager.rid_to_state.get(abort.rid)
        handle(manager, abort)
        # With a reason, as of a full queue, SGLang releases the adapter itself.
        if state is not None and state.finished and not abort.finished_reason and state.obj.lora_path:
            task = asyncio.create_task(manager.lora_registry.release(state.obj.lora_id))
            manager.asyncio_tasks.add(task)
            task.add_done_callback(manager.asyncio_tasks.discard)

    manager_class._handle_abort_req = handle_and_release


def fork_on_a_cpu(engine: ModuleType) -> None:
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    forking = multiprocessing.get_context("fork")
    engine.mp = SimpleNamespace(  # type: ignore[attr-defined]
        Process=forking.Process, Pipe=forking.Pipe, set_start_method=lambda method, force=False: None
    )


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch.distributed.rendezvous": listen_on_loopback,
    "sglang.srt.utils.auth": require_key,
    "sglang.srt.managers.tokenizer_manager": release_adapters_of_aborted_requests,
    "sglang.srt.entrypoints.engine": fork_on_a_cpu,
}


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        PATCHES[module.__name__](module)


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for these modules, so that a process that never imports them does not import them for this."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
