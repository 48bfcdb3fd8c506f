"""What a job may leave in its folders, and what the agent makes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpu_agents.agent.api import AgentApi
from gpu_agents.agent.checkpoints import Uploader, pin
from gpu_agents.agent.node_jobs import RESULT_BYTES, _is_ready, _read_result
from gpu_agents.agent.records import write_json
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.shipping import TelemetryShipper
from gpu_agents.agent.untrusted import Untrusted, read_below, remove_tree
from oolong.contracts.attempt import READY_FILE, RESULT_FILE, mark_ready
from tests.support.scripted_control_plane import ScriptedControlPlane
from tests.unit.agent.test_shipping import record

SECRET = b"the node's credential\n"


@pytest.fixture
def secret(data: DataDirectory) -> Path:
    data.node.write_bytes(SECRET)
    return data.node


def job_directory(data: DataDirectory) -> Path:
    directory = data.job("att_1", "trainer", 0)
    (directory / "outbox").mkdir(parents=True)
    return directory


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "endless"])
def test_only_a_plain_file_is_read(tmp_path: Path, secret: Path, kind: str) -> None:
    path = tmp_path / "job" / "file"
    path.parent.mkdir()
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(Untrusted):
        read_below(tmp_path, "job", "file", limit=100)


@pytest.mark.parametrize("names", [("link", "node.json"), ("..", "node.json"), ("job", "..", "node.json")])
def test_no_way_leads_out_of_the_folder(
    data: DataDirectory, tmp_path: Path, secret: Path, names: tuple[str, ...]
) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "link").symlink_to(data.root)
    with pytest.raises(Untrusted):
        read_below(tmp_path, *names, limit=100)


if os.geteuid() == 0:  # a user can give no file away

    def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / "file").write_text("{}")
        os.chown(tmp_path / "job" / "file", 12345, 12345)
        with pytest.raises(Untrusted, match="belongs to uid 12345"):
            read_below(tmp_path, "job", "file", limit=100)


def test_a_result_that_is_a_link_or_too_long_counts_as_none(data: DataDirectory, secret: Path) -> None:
    directory = job_directory(data)
    (directory / RESULT_FILE).symlink_to(secret)
    assert _read_result(directory) is None
    (directory / RESULT_FILE).unlink()
    (directory / RESULT_FILE).write_bytes(
        b'{"reason": "completed", "message": "' + b"x" * RESULT_BYTES + b'"}'
    )
    assert _read_result(directory) is None


def test_only_the_jobs_own_empty_file_says_that_it_serves(data: DataDirectory, secret: Path) -> None:
    directory = job_directory(data)
    assert not _is_ready(directory)
    (directory / READY_FILE).symlink_to(secret)
    assert not _is_ready(directory)
    (directory / READY_FILE).unlink()
    mark_ready(directory)
    assert _is_ready(directory)


async def test_no_link_in_an_outbox_is_shipped(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory, secret: Path
) -> None:
    directory = job_directory(data)
    (directory / "outbox" / "main-0.jsonl").symlink_to(secret)
    (directory / "outbox" / "good-0.jsonl").write_bytes(b"{}\n")
    os.mkfifo(directory / "outbox" / "pipe-0.jsonl")
    job = record()
    shipper = TelemetryShipper(api, data, jobs=lambda: [job], on_progress=lambda: None)
    await shipper.ship_once()
    assert control_plane.content("job_1", "good-0.jsonl") == b"{}\n"
    assert control_plane.content("job_1", "main-0.jsonl") == b""


async def test_an_outbox_that_became_a_link_is_shipped_from_no_more(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "main-0.jsonl").write_bytes(b'{"secret":1}\n')
    directory = job_directory(data)
    (directory / "outbox").rmdir()
    (directory / "outbox").symlink_to(elsewhere)
    job = record()
    shipper = TelemetryShipper(api, data, jobs=lambda: [job], on_progress=lambda: None)
    await shipper.ship_once()
    uploader = Uploader(api, data, jobs=lambda: [job], shipped=lambda *_: 0)
    uploader.scan()
    assert control_plane.content("job_1", "main-0.jsonl") == b""


def checkpoint(data: DataDirectory) -> tuple[Path, Path, Path]:
    """The attempt, a checkpoint of it, and where it is pinned."""
    attempt = data.attempt("att_1")
    source = attempt / "checkpoints" / "step-1"
    (source / "hf").mkdir(parents=True)
    (source / "hf" / "model.safetensors").write_bytes(b"weights")
    (source / "MANIFEST.json").write_text("{}")
    return attempt, source, attempt / "pinned" / "step-1"


def test_a_plain_checkpoint_is_pinned_whole(data: DataDirectory) -> None:
    attempt, source, target = checkpoint(data)
    assert pin(attempt, source, target)
    assert (target / "hf" / "model.safetensors").read_bytes() == b"weights"


@pytest.mark.parametrize("kind", ["link to a file", "link to a folder", "pipe", "elsewhere", "link above"])
def test_a_checkpoint_with_anything_else_is_not_uploaded(
    data: DataDirectory, secret: Path, kind: str
) -> None:
    attempt, source, target = checkpoint(data)
    if kind == "link to a file":
        (source / "hf" / "tokenizer.json").symlink_to(secret)
    elif kind == "link to a folder":
        (source / "hf" / "all").symlink_to(data.root)
    elif kind == "pipe":
        os.mkfifo(source / "hf" / "pipe")
    elif kind == "elsewhere":
        source = data.root
    else:
        (attempt / "checkpoints" / "step-2").symlink_to(data.root)
        source = attempt / "checkpoints" / "step-2"
    with pytest.raises(Untrusted):
        pin(attempt, source, target)
    assert not target.exists() and not target.with_name(f".{target.name}").exists()


def test_what_the_agent_writes_into_a_jobs_folder_follows_no_planted_link(
    data: DataDirectory, secret: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.json.tmp").symlink_to(secret)
    (tmp_path / "job.json").symlink_to(secret)
    write_json(tmp_path / "job.json", {"name": "trainer"})
    assert secret.read_bytes() == SECRET
    assert not (tmp_path / "job.json").is_symlink()


def test_a_tree_that_is_nested_too_deep_for_python_is_removed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    tree = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=tree)
        below = os.open("d", os.O_RDONLY, dir_fd=tree)
        os.close(tree)
        tree = below
    os.close(tree)
    os.close(here)
    remove_tree(tmp_path / "d")
    assert not (tmp_path / "d").exists()
