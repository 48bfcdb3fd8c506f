"""The agent's part of an import: the real importer process against a hub, then the tar in parts to the server."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_agents.agent import imports as imports_module
from gpu_agents.agent import side_process
from gpu_agents.agent.api import ApiError, ServerUnavailable
from gpu_agents.agent.imports import ModelImports
from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.agent import UploadReply
from oolong.contracts.model_imports import ImportOrder, ImportProgress
from tests.support.scripted_hub import COMMIT, ScriptedHub, serving

MODEL = {
    "config.json": json.dumps({"model_type": "qwen3"}).encode(), "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 300,
}  # fmt: skip
PART_BYTES = 30_000


@dataclass
class Plane:
    """The control plane's side, as the agent's API offers it."""

    order: ImportOrder
    parts: dict[int, bytes] = field(default_factory=dict)
    announced: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    completed: bool = False
    away_once: bool = False
    begun: int = 0
    refused: bool = False
    refused_upload: ApiError | None = None
    reports: int = 0
    completes_after: int = 0  # reports that come while it completes
    busy: int = 0  # times that it asks to come again, for it is still at it

    async def begin_import(self, import_id: str) -> ImportOrder:
        if self.refused:
            raise ApiError(409, "stale_epoch", "cancelled")
        self.begun += 1
        return self.order

    async def report_import(self, import_id: str, progress: ImportProgress) -> None:
        self.reports += 1

    async def fail_import(self, import_id: str, message: str) -> None:
        self.failed = message

    async def begin_import_upload(self, import_id: str, body: dict[str, Any]) -> UploadReply:
        if self.refused_upload is not None:
            raise self.refused_upload
        self.announced = body
        return UploadReply(
            upload_id=import_id, part_bytes=PART_BYTES, received_parts=sorted(self.parts), stored=False
        )

    async def put_import_part(self, import_id: str, number: int, data: bytes, *, sha256: str) -> None:
        if self.away_once and number == 1:
            self.away_once = False
            raise ServerUnavailable("away")
        assert hashlib.sha256(data).hexdigest() == sha256 and number not in self.parts
        self.parts[number] = data

    async def complete_import(self, import_id: str) -> None:
        if self.busy:
            self.busy -= 1
            raise ServerUnavailable("503 completion_in_progress", retry_after=0.001)
        wanted = self.reports + self.completes_after
        while self.reports < wanted:
            await asyncio.sleep(0.001)
        self.completed = True


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    directory = DataDirectory(tmp_path)
    directory.create()
    return directory


def run(plane: Plane, data: DataDirectory, *, times: int = 1) -> None:
    async def go() -> None:
        for _ in range(times):
            wanted = ModelImports(plane, data)  # type: ignore[arg-type]
            wanted.assign(["imp_1"])
            assert wanted._task is not None
            await wanted._task

    asyncio.run(asyncio.wait_for(go(), 120))


def order(hub: ScriptedHub, token: str = "") -> ImportOrder:
    return ImportOrder(import_id="imp_1", endpoint=hub.url, model="acme/tiny", revision="main", token=token)


def test_a_model_is_fetched_by_a_process_and_sent_as_one_tar_in_parts(data: DataDirectory) -> None:
    with serving(ScriptedHub(MODEL, token="hub-token")) as hub:
        plane = Plane(order(hub, "hub-token"))
        run(plane, data)
    whole = b"".join(plane.parts[number] for number in sorted(plane.parts))
    assert plane.completed and hashlib.sha256(whole).hexdigest() == plane.announced["tar_sha256"]
    assert (plane.announced["commit"], plane.announced["bytes"]) == (COMMIT, len(whole))
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        assert {name: tar.extractfile(name).read() for name in tar.getnames()} == MODEL  # type: ignore[union-attr]
    assert not data.model_import("imp_1").exists(), "nothing of it stays on the node, the token least of all"


def test_after_an_outage_it_goes_on_with_the_files_and_parts_that_are_there(data: DataDirectory) -> None:
    with serving(ScriptedHub(MODEL)) as hub:
        plane = Plane(order(hub), away_once=True)
        run(plane, data)
        asked = len(hub.asked)
        assert not plane.completed and sorted(plane.parts) == [0]
        assert not list(data.imports.rglob("order.json")), "its token is not left lying about"
        run(plane, data)
        assert plane.completed and len(hub.asked) == asked, "nothing was fetched twice"


def test_a_server_that_is_still_at_it_is_asked_again_and_nothing_begins_anew(data: DataDirectory) -> None:
    with serving(ScriptedHub(MODEL)) as hub:
        plane = Plane(order(hub), busy=3)
        run(plane, data)
    assert plane.completed and (plane.busy, plane.begun) == (0, 1)


def test_a_refusal_of_the_hub_is_reported_with_its_words(data: DataDirectory) -> None:
    with serving(ScriptedHub({**MODEL, "model.safetensors.index.json": b"[]"})) as hub:
        plane = Plane(order(hub))
        run(plane, data)
    assert "malformed" in plane.failed and not plane.completed
    assert not data.model_import("imp_1").exists()


def test_an_importer_that_dies_fails_the_import_with_its_last_line(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho no space left >&2\nexit 3\n")
    dying.chmod(0o755)
    monkeypatch.setattr(side_process, "sys", SimpleNamespace(executable=str(dying)))
    with serving(ScriptedHub(MODEL)) as hub:
        plane = Plane(order(hub))
        run(plane, data)
    assert plane.failed == "the importer crashed: no space left"


def test_an_import_that_is_not_ours_leaves_nothing(data: DataDirectory) -> None:
    with serving(ScriptedHub(MODEL)) as hub:
        plane = Plane(order(hub), refused=True)
        run(plane, data)
        assert not plane.failed and hub.asked == []
    assert not data.model_import("imp_1").exists()


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(413, "too_large", "a model has at most 5 bytes"),
        ApiError(422, "part_size", "at most 5 bytes"),
    ],
)
def test_what_the_control_plane_refuses_for_good_ends_the_import_with_its_words(
    data: DataDirectory, refusal: ApiError
) -> None:
    with serving(ScriptedHub(MODEL)) as hub:
        plane = Plane(order(hub), refused_upload=refusal)
        run(plane, data)
    assert "at most 5 bytes" in plane.failed and not plane.completed
    assert not data.model_import("imp_1").exists()


@pytest.mark.parametrize(
    "refusal", [ApiError(404, "not_found", "another's"), ApiError(409, "stale_epoch", "gone")]
)
def test_what_another_node_has_by_now_is_no_failure(data: DataDirectory, refusal: ApiError) -> None:
    with serving(ScriptedHub(MODEL)) as hub:
        plane = Plane(order(hub), refused_upload=refusal)
        run(plane, data)
    assert not plane.failed and not data.model_import("imp_1").exists()


def test_it_goes_on_reporting_while_it_hashes_and_while_the_server_completes(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports_module, "REPORT_SECONDS", 0.005)
    plain = imports_module.DirectoryTar.sha256

    def slow(archive: Any) -> str:
        before, deadline = plane.reports, time.monotonic() + 60
        while plane.reports < before + 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert plane.reports >= before + 2, "nothing was reported while it hashed"
        return plain(archive)

    monkeypatch.setattr(imports_module.DirectoryTar, "sha256", slow)
    with serving(ScriptedHub(MODEL)) as hub:
        plane = Plane(order(hub), completes_after=2)
        run(plane, data)
    assert plane.completed
