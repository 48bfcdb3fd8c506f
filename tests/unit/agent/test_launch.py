"""What a job is started with."""

from __future__ import annotations

import os
import socket
import stat
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from gpu_agents.agent.agent import new_record
from gpu_agents.agent.launch import (
    COMMANDS,
    InputPaths,
    JobContext,
    _send_secrets,
    environment,
    job_file,
    make_job_directory,
    port_conflict,
    write_attempt,
)
from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory, check_server_url
from oolong.contracts.agent import Artifact, DesiredAttempt, DesiredJob
from oolong.contracts.attempt import read_attempt
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec import RunSpec
from tests.support.ports import reserve_port

PORTS = {
    "controller": 5001,
    "reward": 5002,
    "engine-1": 5011,
    "engine-0": 5010,
    "engine-10": 5020,
}


def attempt(kind: str = "rl", ranks: int = 2) -> DesiredAttempt:
    spec = RunSpec.model_validate(
        {
            "kind": kind,
            "name": "x",
            "model": {"base_model": "bm"},
            "dataset": {"version": "d@1"},
            "trainer": {"num_ranks": ranks},
        }
    )
    return DesiredAttempt(
        run_id="run_1", attempt_id="att_1", attempt_number=2, epoch=7, spec=spec.model_dump(mode="json"),
        dataset=Artifact(sha256="0" * 64, bytes=1, kind="dataset"), evaluation=None, model=None, model_path="/m",
        resume=None, ports=PORTS, token="t0ken", jobs=[],
    )  # fmt: skip


def place(data: DataDirectory, wanted: DesiredAttempt) -> JobContext:
    inputs = InputPaths(dataset_file=Path("/rows"), model_directory=Path("/m"))
    path = write_attempt(data, wanted, inputs, node_python="/node/python", device="cpu")
    return JobContext(
        attempt=read_attempt(path), attempt_file=path, job_directory=Path("/job"), slots=["cpu-0"]
    )


def record_of(name: str, *, slots: Sequence[str] = ()) -> JobRecord:
    return JobRecord(
        job_id="job_1", run_id="run_1", attempt_id="att_1", epoch=1, name=name, kind=JobKind(name), index=0,
        slots=list(slots), grace_seconds=1.0,
    )  # fmt: skip


def test_uploaded_source_lies_in_the_attempts_directory_under_a_readable_name(
    data: DataDirectory, tmp_path: Path
) -> None:
    cached = tmp_path / "content"
    cached.write_text("def score(prompt, completion, answer): ...")
    inputs = InputPaths(
        dataset_file=Path("/rows"), model_directory=Path("/m"), source_files={"reward": cached}
    )
    written = read_attempt(write_attempt(data, attempt(), inputs, node_python="/p", device="cpu"))
    placed = Path(written.source_files["reward"])
    assert (placed.name, placed.read_text()) == ("reward.py", cached.read_text())
    assert placed.is_relative_to(written.directory)


def test_the_attempt_file_says_what_the_jobs_need(data: DataDirectory) -> None:
    found = place(data, attempt())
    written = found.attempt
    assert (written.controller_url, written.reward_url) == ("http://127.0.0.1:5001", "http://127.0.0.1:5002")
    assert written.engine_ports == [5010, 5011, 5020], "in the order of the engines' numbers"
    assert (written.epoch, written.attempt_number) == (7, 2)
    assert written.run_spec.trainer.num_ranks == 2
    assert stat.S_IMODE(found.attempt_file.stat().st_mode) == 0o600
    assert written.weights_directory.is_dir() and written.checkpoints_directory.is_dir()
    assert not written.evaluators
    assert place(data, msgspec.structs.replace(attempt(), evaluators=True)).attempt.evaluators


def test_an_evaluator_receives_its_task() -> None:
    job = DesiredJob(
        job_id="job_1", name="evaluator-2", kind=JobKind.ROLLOUT, index=2, slots=["cpu-2"], restarts=0,
        engine_port=5030, evaluates="step-20-v20",
    )  # fmt: skip
    told = job_file(new_record(attempt(), job))
    assert (told.evaluates, told.engine_port, told.slots) == ("step-20-v20", 5030, ["cpu-2"])
    assert job_file(new_record(attempt(), msgspec.structs.replace(job, evaluates=""))).evaluates == ""


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        (JobKind.CONTROLLER, "gpu_agents.rollout.controller"),
        (JobKind.REWARD, "gpu_agents.rewards"),
        (JobKind.ROLLOUT, "gpu_agents.rollout.worker"),
    ],
)
def test_jobs_without_torch_run_by_the_agents_python(data: DataDirectory, kind: JobKind, module: str) -> None:
    found = place(data, attempt())
    tail = ["--attempt", str(found.attempt_file), "--job", "/job"]
    assert COMMANDS[kind](found) == [sys.executable, "-m", module, *tail]


@pytest.mark.parametrize("kind", ["rl", "sft"])
def test_the_trainer_is_started_with_its_ranks_by_the_node_environment(
    data: DataDirectory, kind: str
) -> None:
    command = COMMANDS[JobKind.TRAINER](place(data, attempt(kind, ranks=3)))
    assert command[:5] == ["/node/python", "-m", "trainers.distributed.launch", "3", f"trainers.{kind}"]


def test_a_job_inherits_nothing_of_the_agents_environment(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OOLONG_TOKEN", "ool_secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/driver")
    record = record_of("trainer", slots=["GPU-a", "GPU-b"])
    on_cpu = environment(data, record, device="cpu")
    assert not {"OOLONG_TOKEN", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"} & set(on_cpu)
    on_gpu = environment(data, record, device="cuda")
    assert (on_gpu["CUDA_VISIBLE_DEVICES"], on_gpu["LD_LIBRARY_PATH"]) == ("GPU-a,GPU-b", "/driver")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives attempts a uid")
def test_a_job_directory_that_a_killed_agent_left_half_made_is_finished(tmp_path: Path) -> None:
    """Killed between making the outbox and giving the folder away: the job could write nothing in it."""
    uid, directory = 471_100, tmp_path / "trainer-0"
    (directory / "outbox").mkdir(parents=True)
    make_job_directory(directory, record_of("trainer"), uid=uid)
    assert {path.stat().st_uid for path in (directory, *directory.iterdir())} == {uid}
    (directory / "outbox" / "main-0.jsonl").touch()
    (directory / "job.json").write_text("the job's own")
    make_job_directory(directory, record_of("trainer"), uid=uid)
    assert (directory / "job.json").read_text() == "the job's own"


def test_secrets_that_nobody_takes_are_given_up() -> None:
    secrets = {f"NAME_{number}": "v" * 10_000 for number in range(32)}
    reader, writer = os.pipe()
    assert not _send_secrets(os.fdopen(writer, "wb"), secrets, deadline=time.monotonic() + 0.05)
    with os.fdopen(reader, "rb") as taken:
        assert 0 < len(taken.read()) < 320_000, "and the pipe is closed"


def test_secrets_of_any_size_are_handed_over_whole() -> None:
    secrets = {f"NAME_{number}": "v" * 10_000 for number in range(32)}
    reader, writer = os.pipe()
    with ThreadPoolExecutor() as pool, os.fdopen(reader, "rb") as source:
        taken = pool.submit(source.read)
        assert _send_secrets(os.fdopen(writer, "wb"), secrets, deadline=time.monotonic() + 60)
        assert msgspec.json.decode(taken.result(60)) == secrets
    reader, writer = os.pipe()
    os.close(reader)
    assert _send_secrets(os.fdopen(writer, "wb"), secrets, deadline=time.monotonic() + 60), (
        "its end tells more"
    )


def test_a_port_in_use_is_named() -> None:
    port = reserve_port()  # nobody else has it afterwards
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        assert f"port {port} (reward)" in port_conflict({"reward": port})
    assert port_conflict({"reward": port}) == ""


@pytest.mark.parametrize(
    "url", ["https://oolong.example.org/", "http://127.0.0.1:8401", "http://localhost", "http://[::1]:1"]
)
def test_servers_that_an_agent_talks_to(url: str) -> None:
    assert check_server_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url", ["http://oolong.example.org", "http://10.0.0.5:8400", "oolong.example.org", "ftp://x", ""]
)
def test_servers_that_an_agent_refuses(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        check_server_url(url)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a\0b"])
def test_names_from_the_network_never_leave_the_data_directory(data: DataDirectory, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a file name"):
        data.attempt(name)


def test_a_job_finds_the_programs_of_the_system_whatever_the_path_of_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its engine asks lscpu, and the agent's PATH may lead through folders that the job does not see."""
    data = DataDirectory(tmp_path)
    job = DesiredJob(job_id="job_1", name="trainer", kind=JobKind.TRAINER, index=0, slots=[], restarts=0)
    record = new_record(attempt(), job)
    monkeypatch.setenv("PATH", "/opt/links:/usr/bin")
    assert environment(data, record, device="cpu")["PATH"].split(":") == [
        "/opt/links",
        "/usr/bin",
        "/usr/local/bin",
        "/bin",
    ]
    monkeypatch.delenv("PATH")
    assert environment(data, record, device="cpu")["PATH"].split(":") == [
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
    ]
