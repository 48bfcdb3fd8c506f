"""Checkpoints: pinned the moment they are announced, uploaded in parts, resumed."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from gpu_agents.agent.api import AgentApi, ServerUnavailable
from gpu_agents.agent.checkpoints import Uploader
from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory
from oolong.client.directory_tar import DirectoryTar
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.telemetry import CheckpointLine, Outbox, Points
from tests.support.scripted_control_plane import Fault, ScriptedControlPlane

RECORD = JobRecord(
    job_id="job_1", run_id="run_1", attempt_id="att_1", epoch=1, name="trainer", kind=JobKind.TRAINER,
    index=0, slots=[], grace_seconds=1.0,
)  # fmt: skip


class Trainer:
    """Commits checkpoints as the trainer does: directory first, then the line."""

    def __init__(self, data: DataDirectory) -> None:
        self.data = data
        self.outbox = Outbox(data.job("att_1", "trainer", 0), 0)

    def directory(self, step: int) -> Path:
        return self.data.attempt("att_1") / "checkpoints" / f"step-{step:08d}"

    def commit(self, step: int, *, final: bool = False, size: int = 10_000) -> None:
        directory = self.directory(step)
        (directory / "hf").mkdir(parents=True)
        (directory / "hf" / "model.safetensors").write_bytes(bytes([step]) * size)
        (directory / "trainer.json").write_text(f'{{"step": {step}}}')
        (directory / "MANIFEST.json").write_text("{}")
        self.outbox.write(
            CheckpointLine(
                step=step, directory=str(directory), manifest_sha256=f"{step:064d}", bytes=size, final=final
            )
        )


def uploader(api: AgentApi, data: DataDirectory, shipped: int = 10**9) -> Uploader:
    return Uploader(api, data, jobs=lambda: [RECORD], shipped=lambda job, file: shipped)


def names_in(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return tar.getnames()


async def upload_all(found: Uploader) -> None:
    while (upload := found.next_upload()) is not None:
        await found.upload(upload)


async def test_a_committed_checkpoint_reaches_the_store(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    trainer = Trainer(data)
    trainer.outbox.write(Points(axis="step", x=1, values={"reward/mean": 0.5}))
    trainer.commit(20, final=True)
    found = uploader(api, data)
    found.scan()
    await upload_all(found)
    archive = control_plane.stored_upload(20)
    assert archive is not None
    assert names_in(archive) == ["MANIFEST.json", "hf/model.safetensors", "trainer.json"]
    body = control_plane.uploads["upl_20"].body
    assert (body["epoch"], body["final"], body["bytes"], body["manifest_sha256"]) == (
        1,
        True,
        len(archive),
        f"{20:064d}",
    )
    assert not list((data.attempt("att_1") / "pinned").iterdir()), "the pin is released"


async def test_pruning_by_the_trainer_does_not_harm_an_upload(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    trainer = Trainer(data)
    trainer.commit(20)
    found = uploader(api, data)
    found.scan()
    shutil.rmtree(trainer.directory(20))
    await upload_all(found)
    assert control_plane.stored_upload(20) is not None


async def test_a_broken_upload_sends_only_the_missing_parts(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    trainer = Trainer(data)
    trainer.commit(20, size=40_000)
    found = uploader(api, data)
    found.scan()
    control_plane.faults.append(Fault("parts/5", "refuse"))
    upload = found.next_upload()
    assert upload is not None
    with pytest.raises(ServerUnavailable):
        await found.upload(upload)
    control_plane.requests.clear()
    again = uploader(api, data)  # the agent was restarted in between
    again.scan()
    await upload_all(again)
    puts = [line for line in control_plane.requests if line.startswith("PUT")]
    assert puts[0].split("/")[-1].startswith("5 ")
    assert control_plane.stored_upload(20) is not None


async def test_a_stored_checkpoint_is_not_sent_again_after_a_restart(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    Trainer(data).commit(20)
    found = uploader(api, data)
    found.scan()
    await upload_all(found)
    again = uploader(api, data)
    again.scan()
    assert again.next_upload() is None
    assert not again.pending("att_1")


async def test_the_newest_goes_first(api: AgentApi, data: DataDirectory) -> None:
    trainer = Trainer(data)
    trainer.commit(20)
    trainer.commit(40)
    found = uploader(api, data)
    found.scan()
    upload = found.next_upload()
    assert upload is not None and upload.step == 40


async def test_an_upload_waits_until_the_server_knows_the_checkpoint(
    api: AgentApi, data: DataDirectory
) -> None:
    Trainer(data).commit(20)
    found = uploader(api, data, shipped=0)
    found.scan()
    assert found.next_upload() is None
    assert found.pending("att_1")


async def test_a_fenced_attempt_gives_its_checkpoint_up(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    Trainer(data).commit(20)
    control_plane.fenced.add("att_1")
    found = uploader(api, data)
    found.scan()
    await upload_all(found)
    assert not found.pending("att_1")
    assert control_plane.stored_upload(20) is None


async def test_a_checkpoint_outside_its_attempt_is_not_uploaded(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "MANIFEST.json").write_text("{}")
    Trainer(data).outbox.write(CheckpointLine(step=1, directory=str(elsewhere), manifest_sha256="0", bytes=1))
    found = uploader(api, data)
    found.scan()
    assert found.next_upload() is None


def test_the_archive_of_a_directory_has_the_same_bytes_in_any_cut(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ("long-name-" * 15)).write_bytes(b"l" * 1000)
    (tmp_path / "empty").touch()
    (tmp_path / "b").write_bytes(bytes(range(256)) * 9)
    tar = DirectoryTar(tmp_path)
    whole = tar.read(0, tar.size)
    assert len(whole) == tar.size
    for size in (1, 511, 512, 513, 4096):
        if size > 1 or tar.size < 100_000:
            assert b"".join(tar.read(begin, size) for begin in range(0, tar.size, size)) == whole
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        assert {member.name: (member.mtime, member.uid) for member in archive} == dict.fromkeys(
            ("b", "empty", "sub/" + "long-name-" * 15), (0, 0)
        )
        extracted = archive.extractfile("b")
        assert extracted is not None and extracted.read() == bytes(range(256)) * 9
