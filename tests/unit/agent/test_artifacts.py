"""Inputs: resumed, verified, unpacked without following anything out of the cache, evicted by size."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from gpu_agents.agent.api import AgentApi, ApiError
from gpu_agents.agent.artifacts import ArtifactError, Cache, checkpoint_directory, model_directory
from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.agent import Artifact
from tests.support.scripted_control_plane import Fault, ScriptedControlPlane


def offer(control_plane: ScriptedControlPlane, content: bytes, kind: str = "dataset") -> Artifact:
    sha256 = hashlib.sha256(content).hexdigest()
    control_plane.artifacts[sha256] = content
    return Artifact(sha256=sha256, bytes=len(content), kind=kind)


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def file(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


@pytest.fixture
def cache(data: DataDirectory) -> Cache:
    return Cache(data.cache, limit_bytes=1000)


async def test_a_dataset_is_fetched_once_and_cached(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    artifact = offer(control_plane, b"rows\n" * 1000)
    paths = await asyncio.gather(*(cache.fetch(api, artifact) for _ in range(5)))
    assert {path.read_bytes() for path in paths} == {b"rows\n" * 1000}
    await cache.fetch(api, artifact)
    assert control_plane.ranges == [""]


async def test_a_broken_download_goes_on_where_it_ended(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    artifact = offer(control_plane, bytes(range(256)) * 4096)
    control_plane.faults.append(Fault("artifacts", "cut_body"))
    path = await asyncio.wait_for(cache.fetch(api, artifact), 60)
    assert path.read_bytes() == bytes(range(256)) * 4096
    assert control_plane.ranges == ["", f"bytes={128 * 4096}-"]


async def test_what_an_earlier_agent_left_is_used(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache, data: DataDirectory
) -> None:
    artifact = offer(control_plane, b"0123456789")
    (data.cache / f".part-{artifact.sha256}").write_bytes(b"01234")
    assert (await cache.fetch(api, artifact)).read_bytes() == b"0123456789"
    assert control_plane.ranges == ["bytes=5-"]


async def test_bytes_that_do_not_verify_are_never_used(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    artifact = offer(control_plane, b"good")
    control_plane.artifacts[artifact.sha256] = b"evil"
    with pytest.raises(ArtifactError, match="4 bytes were promised"):
        await cache.fetch(api, artifact)
    control_plane.artifacts[artifact.sha256] = b"good"
    assert (await cache.fetch(api, artifact)).read_bytes() == b"good"


async def test_what_the_store_does_not_have_is_refused_at_once(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    with pytest.raises(ApiError, match="not_found"):
        await cache.fetch(api, Artifact(sha256="a" * 64, bytes=1, kind="dataset"))


async def test_a_model_archive_is_unpacked(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    archive = tar_of(file("tiny/config.json", b"{}"), file("tiny/sub/weights", b"w"))
    content = await cache.fetch(api, offer(control_plane, archive, "model"))
    assert model_directory(content) == content / "tiny"
    assert (content / "tiny" / "sub" / "weights").read_bytes() == b"w"


async def test_a_checkpoint_serves_as_a_model_and_for_resuming(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    archive = tar_of(file("hf/config.json"), file("state/0.distcp"), file("MANIFEST.json", b"{}"))
    content = await cache.fetch(api, offer(control_plane, archive, "checkpoint"))
    assert model_directory(content) == content / "hf"
    assert checkpoint_directory(content) == content


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([file("../outside")], "outside of it"),
        ([file("/etc/outside")], "outside of it"),
        ([link("hole", "/etc"), file("hole/passwd")], "not a regular file"),
        ([file("a"), link("b", "a", tarfile.LNKTYPE)], "not a regular file"),
        ([link("pipe", "", tarfile.FIFOTYPE)], "not a regular file"),
        ([file("a"), file("a")], "twice"),
    ],
)
async def test_an_archive_that_reaches_out_is_refused(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache, data: DataDirectory,
    members: list[tuple[tarfile.TarInfo, bytes]], message: str,
) -> None:  # fmt: skip
    with pytest.raises(ArtifactError, match=message):
        await cache.fetch(api, offer(control_plane, tar_of(*members), "model"))
    assert not (data.root / "outside").exists() and not (data.cache / "outside").exists()


async def test_bytes_that_are_no_archive_are_refused(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    with pytest.raises(ArtifactError, match="not a readable tar"):
        await cache.fetch(api, offer(control_plane, b"not a tar" * 200, "model"))


async def test_a_truncated_archive_is_refused(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    whole = gzip.compress(tar_of(file("config.json", os.urandom(100_000))))
    with pytest.raises(ArtifactError, match="not a readable tar"):
        await cache.fetch(api, offer(control_plane, whole[: len(whole) // 2], "model"))


async def test_leftovers_of_a_killed_agent_are_removed_and_stand_in_no_way(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache, data: DataDirectory
) -> None:
    """Killed while it removed one entry, between unpacking and dropping the archive of another, while it unpacked."""
    evicted, kept = (offer(control_plane, bytes([number]) * 1200) for number in range(2))
    for artifact in (evicted, kept):
        await cache.fetch(api, artifact)
    deleting = data.cache / f".deleting-{evicted.sha256}"
    shutil.copytree(data.cache / evicted.sha256, deleting)
    archive = data.cache / f".part-{kept.sha256}"
    archive.write_bytes(b"unpacked")
    building = data.cache / f".building-{'c' * 64}"
    building.mkdir()
    unfinished = data.cache / f".part-{'d' * 64}"
    unfinished.write_bytes(b"0123")

    after = Cache(data.cache, limit_bytes=1000)
    assert not any(path.exists() for path in (deleting, archive, building))
    assert unfinished.exists(), "a partial download resumes"
    assert set(after.evict(in_use=())) == {evicted.sha256, kept.sha256}


async def test_the_longest_unused_leave_first_and_never_what_is_in_use(
    control_plane: ScriptedControlPlane, api: AgentApi, cache: Cache
) -> None:
    artifacts = [offer(control_plane, bytes([number]) * 400) for number in range(4)]
    for age, artifact in enumerate(artifacts):
        path = await cache.fetch(api, artifact)
        os.utime(path.parent, (1000 + age, 1000 + age))
    removed = cache.evict(in_use={artifacts[0].sha256})
    assert removed == [artifacts[1].sha256, artifacts[2].sha256]
    assert (await cache.fetch(api, artifacts[1])).read_bytes() == bytes([1]) * 400


def test_a_model_without_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").touch()
    with pytest.raises(ArtifactError, match=r"no config.json.*weights\.bin"):
        model_directory(tmp_path)
