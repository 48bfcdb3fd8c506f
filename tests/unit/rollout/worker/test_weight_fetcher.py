"""Weights travel from the trainer's node to another one: over TLS, verified, fetched once, old versions removed."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import pytest

from control_plane.runs.attempt_certificate import create_certificate
from gpu_agents.rollout.controller.weight_server import WeightServer
from gpu_agents.rollout.worker import weight_fetcher
from gpu_agents.rollout.worker.manifest import InvalidWeights
from gpu_agents.rollout.worker.weight_fetcher import WeightFetcher
from oolong.contracts.attempt import PeerListenerFile
from oolong.contracts.rollout import PublishedWeights
from oolong.system import bucket_hashes
from oolong.system.pinned_tls import client_context
from oolong.system.rpc import RpcUnavailable

TOKEN = "attempt-token"
BUCKET = 1000
CERTIFICATE = create_certificate("attempt", now=datetime.now(UTC))


@dataclass
class TrainerNode:
    directory: Path
    url: str = ""
    requests: int = 0

    def publish(self, version: int, size: int = 3500) -> PublishedWeights:
        folder = self.directory / f"v{version:08d}"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(os.urandom(size))
        (folder / "config.json").write_bytes(b"")
        files = [
            {
                "name": path.name,
                "bytes": path.stat().st_size,
                "bucket_sha256": bucket_hashes.bucket_sha256(path, bucket_bytes=BUCKET),
            }
            for path in sorted(folder.iterdir())
        ]
        manifest = msgspec.json.encode({"version": version, "files": files, "tensors": []})
        (folder / "manifest.json").write_bytes(manifest)
        return PublishedWeights(
            version=version, directory=str(folder), manifest_sha256=hashlib.sha256(manifest).hexdigest()
        )


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainerNode]:
    monkeypatch.setattr(weight_fetcher, "BUCKET_BYTES", BUCKET)
    node = TrainerNode(tmp_path / "trainer")
    node.directory.mkdir()
    served = WeightServer._serve

    async def counted(self: WeightServer, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        node.requests += 1
        return await served(self, request)

    monkeypatch.setattr(WeightServer, "_serve", counted)
    server = WeightServer(node.directory, token=TOKEN)
    port = server.start(
        PeerListenerFile(
            address="127.0.0.2",
            certificate=CERTIFICATE.certificate,
            private_key=CERTIFICATE.private_key,
            weights_port=0,
        )
    )
    node.url = f"https://127.0.0.2:{port}"
    yield node
    server.close()


def fetcher(
    trainer: TrainerNode, local: Path, *, token: str = TOKEN, retry_seconds: float = 5.0
) -> WeightFetcher:
    local.mkdir(exist_ok=True)
    return WeightFetcher(
        url=trainer.url,
        token=token,
        certificate=CERTIFICATE.certificate,
        directory=local,
        retry_seconds=retry_seconds,
    )


def names(local: Path) -> list[str]:
    return sorted(path.name for path in local.iterdir() if path.name != ".lock")


async def test_a_version_arrives_whole_and_is_fetched_once(trainer: TrainerNode, tmp_path: Path) -> None:
    weights, one, two = trainer.publish(3), fetcher(trainer, tmp_path / "b"), fetcher(trainer, tmp_path / "b")

    async def load(one: WeightFetcher) -> bytes:
        async with one.hold(weights) as local:
            assert Path(local.directory) == tmp_path / "b" / "v00000003"
            return Path(local.directory, "model.safetensors").read_bytes()

    found = await asyncio.gather(load(one), load(two))
    assert found == [Path(weights.directory, "model.safetensors").read_bytes()] * 2
    assert trainer.requests == 1 + 4, "the manifest and four buckets; an empty file has none"
    assert await load(one) == found[0]
    assert trainer.requests == 5
    await one.close()
    await two.close()


async def test_older_versions_are_removed_once_nobody_loads_them(
    trainer: TrainerNode, tmp_path: Path
) -> None:
    versions, local = [trainer.publish(version) for version in range(3)], tmp_path / "b"
    slow, fast = fetcher(trainer, local), fetcher(trainer, local)
    async with slow.hold(versions[0]) as held:
        for weights in versions[1:]:
            async with fast.hold(weights):
                pass
        assert names(local) == ["v00000000", "v00000002"]
        assert Path(held.directory, "model.safetensors").exists()
    async with fast.hold(versions[2]):
        pass
    assert names(local) == ["v00000002"]
    await slow.close()
    await fast.close()


async def test_damaged_weights_are_rejected_and_leave_no_version(
    trainer: TrainerNode, tmp_path: Path
) -> None:
    weights, one = trainer.publish(1), fetcher(trainer, tmp_path / "b")
    with Path(weights.directory, "model.safetensors").open("r+b") as file:
        file.seek(2500)
        file.write(b"another weight")
    with pytest.raises(
        InvalidWeights, match=r"model\.safetensors: bucket 2 arrived 3 times with another sha256"
    ):
        async with one.hold(weights):
            pass
    assert "v00000001" not in names(tmp_path / "b")
    with pytest.raises(InvalidWeights, match="was announced"):
        async with one.hold(msgspec.structs.replace(weights, manifest_sha256="0" * 64)):
            pass
    await one.close()


async def test_what_an_interrupted_fetch_left_is_replaced(trainer: TrainerNode, tmp_path: Path) -> None:
    weights, local = trainer.publish(1), tmp_path / "b"
    one = fetcher(trainer, local)
    (local / ".fetching-v00000000").mkdir()
    (local / ".fetching-v00000001").mkdir()
    async with one.hold(weights):
        assert names(local) == ["v00000001"]
    await one.close()


async def test_a_deleted_version_and_a_wrong_token_are_named(trainer: TrainerNode, tmp_path: Path) -> None:
    weights = trainer.publish(1)
    gone = msgspec.structs.replace(weights, directory=str(trainer.directory / "v00000009"))
    for one, given, said in (
        (fetcher(trainer, tmp_path / "b"), gone, "HTTP 404: there is no v00000009/manifest.json"),
        (fetcher(trainer, tmp_path / "b", token="old"), weights, "HTTP 401"),
    ):
        with pytest.raises(InvalidWeights, match=said):
            async with one.hold(given):
                pass
        await one.close()


async def test_a_link_that_stays_cut_is_reported(trainer: TrainerNode, tmp_path: Path) -> None:
    weights = trainer.publish(1)
    trainer.url = "https://127.0.0.2:1"
    one = fetcher(trainer, tmp_path / "b", retry_seconds=0.2)
    with pytest.raises(RpcUnavailable, match=r"on the trainer's node were not sent for 0\.2 s"):
        async with one.hold(weights):
            pass
    await one.close()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    context = client_context(CERTIFICATE.certificate)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context), headers={"Authorization": f"Bearer {TOKEN}"}
    ) as session:
        yield session


@pytest.mark.parametrize(
    "path",
    [
        "v00000001/.hidden",
        "../attempt.json",
        "v00000001/..%2f..%2fattempt.json",
        ".fetching-v00000001/a",
        "v1/a",
    ],
)
async def test_only_files_of_published_versions_are_served(
    trainer: TrainerNode, client: aiohttp.ClientSession, path: str
) -> None:
    trainer.publish(1)
    (trainer.directory.parent / "attempt.json").write_text("secret")
    async with client.get(f"{trainer.url}/{path}") as reply:
        assert reply.status == 404


@pytest.mark.parametrize("authorization", [None, "", "Bearer ", "Bearer wrong", "Basic attempt-token"])
async def test_nothing_is_served_without_the_attempts_token(
    trainer: TrainerNode, authorization: str | None
) -> None:
    trainer.publish(1)
    headers = {} if authorization is None else {"Authorization": authorization}
    context = client_context(CERTIFICATE.certificate)
    async with aiohttp.ClientSession(headers=headers) as session:
        for method in ("GET", "HEAD", "POST"):
            async with session.request(method, f"{trainer.url}/v00000001/config.json", ssl=context) as reply:
                assert reply.status == (401 if method != "POST" else 405)
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http{trainer.url.removeprefix('https')}/v00000001/config.json")


async def test_another_certificate_is_not_accepted(trainer: TrainerNode) -> None:
    other = create_certificate("other", now=datetime.now(UTC))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{trainer.url}/v00000001/a", ssl=client_context(other.certificate))
