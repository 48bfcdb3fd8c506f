"""The model of an adapter checkpoint as a download: base and adapters are merged while it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

from control_plane.assets.storage import store
from control_plane.checkpoints.models import Checkpoint, CheckpointContent, CheckpointState
from control_plane.checkpoints.weights import Weights, weights_of
from control_plane.core.api.errors import Problem, conflict
from oolong.contracts.lora_adapter import ADAPTER_CONFIG_FILE
from oolong.merging.archive import MergedArchive
from oolong.merging.folders import StoredFile, folder_of_tar
from oolong.merging.merge import Adapter, MergedWeights
from oolong.merging.tensors import MergeError


def merged_response(request: HttpRequest, checkpoint: Checkpoint) -> StreamingHttpResponse:
    """409 for a checkpoint that is no adapter, and where its base is not in the store; 410 where that was deleted."""
    if checkpoint.content != CheckpointContent.ADAPTER:
        raise conflict(
            "not_an_adapter", f"checkpoint {checkpoint.pk} holds a whole model; download or export it"
        )
    weights = weights_of(checkpoint)
    _require_stored(checkpoint, weights)
    with ExitStack() as opening:
        try:
            archive = _open(weights, opening)
        except MergeError as error:
            raise conflict("cannot_merge", f"checkpoint {checkpoint.pk} cannot be merged: {error}") from error
        stack = opening.pop_all()  # open until the response is sent
    chunks = _closing(archive.chunks(), stack)
    # Under ASGI a plain iterator would be read whole into memory first.
    body = _in_threads(chunks, stack) if isinstance(request, ASGIRequest) else chunks
    response = StreamingHttpResponse(body, content_type="application/x-tar")
    response["Content-Length"] = str(archive.bytes)
    name = f"{checkpoint.pk}-step-{checkpoint.step}-merged.tar"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _require_stored(checkpoint: Checkpoint, weights: Weights) -> None:
    if (gone := weights.deleted) is not None:
        raise Problem(
            410, "deleted",
            f"the bytes of checkpoint {gone.pk}, on which the adapter {checkpoint.pk} was trained, were deleted",
        )  # fmt: skip
    waiting = next((one for one in weights.checkpoints if one.state != CheckpointState.STORED), None)
    if waiting is not None:
        raise conflict("not_stored", f"checkpoint {waiting.pk} is only on its node so far; try again later")
    model = weights.base_model
    if model is not None and model.source == "path":
        raise conflict(
            "base_on_nodes",
            f"base model {model.name!r} is the directory {model.path} on nodes and not in the store; export the "
            "adapter, and merge it with PEFT where that directory is",
        )


def _open(weights: Weights, stack: ExitStack) -> MergedArchive:
    def folder(sha256: str, marker: str) -> dict[str, StoredFile]:
        return folder_of_tar(stack.enter_context(store.open_blob(sha256)), marker=marker)

    if weights.model is not None:
        model = folder(weights.model.tar_sha256, "config.json")
    else:
        assert weights.base_model is not None
        model = folder(weights.base_model.sha256, "config.json")
    adapters = [Adapter.of(folder(one.tar_sha256, ADAPTER_CONFIG_FILE)) for one in weights.adapters]
    return MergedArchive(model, MergedWeights(model, adapters))


def _closing(chunks: Iterator[bytes], stack: ExitStack) -> Iterator[bytes]:
    with stack:
        yield from chunks


async def _in_threads(chunks: Iterator[bytes], stack: ExitStack) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
    finally:
        stack.close()  # a thread that still reads for a client that has left ends with it
