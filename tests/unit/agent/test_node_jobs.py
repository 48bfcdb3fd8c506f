"""Jobs that a node does not start, and what is left of them."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from safetensors.numpy import load_file

from gpu_agents.agent import processes
from gpu_agents.agent.api import AgentApi
from gpu_agents.agent.isolation.node import NodeIsolation
from gpu_agents.agent.launch import InputPaths, write_attempt
from gpu_agents.agent.node_jobs import NodeJobs
from gpu_agents.agent.preparation import Preparer
from gpu_agents.agent.reconcile import Inputs, Phase, Preparation
from gpu_agents.agent.records import JobRecord, SupervisorRecord, write_json
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from oolong.contracts.agent import Artifact, DesiredAttempt, JobIsolation
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.system.process_handle import find_process
from tests.support.checkpoint_tars import pack_checkpoint
from tests.support.scripted_control_plane import ScriptedControlPlane
from tests.support.tiny_adapters import adapter_tar, merged_tensors, model_files, model_tar

DATASET = Artifact(sha256=hashlib.sha256(b"{}").hexdigest(), bytes=2, kind="dataset")
LOSS = Artifact(sha256="1" * 64, bytes=1, kind="source")


def not_isolating(data: DataDirectory) -> NodeIsolation:
    return NodeIsolation(kind=JobIsolation.NONE, data=data, reason="it was told so")


def wanted(**changes: object) -> DesiredAttempt:
    values: dict[str, object] = {
        "run_id": "run_1", "attempt_id": "att_1", "attempt_number": 1, "epoch": 1, "spec": {}, "dataset": DATASET,
        "evaluation": None, "model": None, "model_path": "/m", "resume": None, "ports": {}, "token": "t0ken",
        "jobs": [],
    }  # fmt: skip
    return DesiredAttempt(**{**values, **changes})  # type: ignore[arg-type]


def node_jobs(data: DataDirectory) -> NodeJobs:
    """Of a node whose trainers sleep."""
    return NodeJobs(
        data, commands={JobKind.TRAINER: lambda place: [sys.executable, "-S", "-c", "import time; time.sleep(600)"]},
        device="cpu", orphan_ttl_seconds=600.0, isolation=not_isolating(data),
    )  # fmt: skip


def trainer(data: DataDirectory, sources: Mapping[str, Path] = MappingProxyType({})) -> JobRecord:
    """Of an attempt that an earlier agent prepared."""
    inputs = InputPaths(dataset_file=Path("/rows"), model_directory=Path("/m"), source_files=sources)
    write_attempt(data, wanted(), inputs, node_python=sys.executable, device="cpu")
    return JobRecord(
        job_id=f"job_{secrets.token_hex(8)}", run_id="run_1", attempt_id="att_1", epoch=1, name="trainer",
        kind=JobKind.TRAINER, index=0, slots=[], grace_seconds=1.0,
    )  # fmt: skip


async def prepared(data: DataDirectory, api: AgentApi, attempt: DesiredAttempt) -> Inputs:
    settings = AgentSettings(
        server="http://127.0.0.1", data_directory=data.root, node_python=sys.executable, name="node",
        model_roots=("/models",),
    )  # fmt: skip
    moved = asyncio.Event()
    preparer = Preparer(settings, data, api, on_progress=moved.set, isolation=not_isolating(data))
    preparer.begin(attempt, begun=False, wanted=[])
    await asyncio.wait_for(moved.wait(), 60)
    return preparer.inputs[attempt.attempt_id]


async def test_an_unforeseen_fault_ends_a_preparation(
    data: DataDirectory, api: AgentApi, control_plane: ScriptedControlPlane
) -> None:
    """Otherwise the attempt would hold its slots for ever."""
    control_plane.artifacts[DATASET.sha256] = b"{}"
    inputs = await prepared(data, api, wanted(model_path="/models/\0"))
    assert (inputs.state, inputs.message) == (Preparation.FAILED, "ValueError: embedded null byte")


async def test_a_model_is_its_base_with_the_adapters_merged(
    data: DataDirectory, api: AgentApi, control_plane: ScriptedControlPlane
) -> None:
    """Merged once: the second attempt finds it in the cache, and nothing is merged again."""
    base, *adapters = [artifact(control_plane, tar) for tar in (model_tar(), adapter_tar(1), adapter_tar(2))]
    attempt = wanted(dataset=artifact(control_plane, b"{}", "dataset"), model=base, adapters=adapters)
    assert (await prepared(data, api, attempt)).state is Preparation.READY
    [merged] = list(data.cache.glob("*/content/model.safetensors"))
    tensors = load_file(merged)
    expected = merged_tensors(1, 2)
    assert tensors.keys() == expected.keys()
    assert all(np.allclose(tensors[name], expected[name], atol=1e-6) for name in expected)
    assert {path.name for path in merged.parent.iterdir()} == set(model_files())
    written = json.loads((data.attempt("att_1") / "attempt.json").read_bytes())
    assert written["model_directory"] == str(merged.parent)
    before = merged.stat().st_mtime_ns
    assert (await prepared(data, api, attempt)).state is Preparation.READY
    assert merged.stat().st_mtime_ns == before


async def test_a_checkpoint_without_an_adapter_is_an_invalid_model(
    data: DataDirectory, api: AgentApi, control_plane: ScriptedControlPlane
) -> None:
    base, no_adapter = (artifact(control_plane, tar) for tar in (model_tar(), pack_checkpoint({})))
    dataset = artifact(control_plane, b"{}", "dataset")
    inputs = await prepared(data, api, wanted(dataset=dataset, model=base, adapters=[no_adapter]))
    assert (inputs.state, inputs.reason) == (Preparation.FAILED, EndReason.MODEL_INVALID)
    assert "no adapter/adapter_config.json" in inputs.message


def artifact(control_plane: ScriptedControlPlane, data: bytes, kind: str = "model") -> Artifact:
    sha256 = hashlib.sha256(data).hexdigest()
    control_plane.artifacts[sha256] = data
    return Artifact(sha256=sha256, bytes=len(data), kind=kind)


async def test_without_isolation_a_node_prepares_no_uploaded_loss(data: DataDirectory, api: AgentApi) -> None:
    inputs = await prepared(data, api, wanted(sources={"loss": LOSS}))
    assert inputs.state is Preparation.FAILED
    assert inputs.message == "this node does not isolate jobs, so it runs no uploaded loss: it was told so"


async def test_a_node_that_isolates_no_more_starts_no_job_beside_an_uploaded_loss(
    data: DataDirectory, tmp_path: Path
) -> None:
    """An earlier agent prepared the attempt, so the refusal of the preparation comes too late."""
    loss = tmp_path / "loss.py"
    loss.touch()
    record = trainer(data, {"loss": loss})
    await node_jobs(data).start(record, {})
    assert record.ended and record.reason is EndReason.PREPARATION_FAILED
    assert "runs no uploaded loss" in record.message
    assert not data.job("att_1", "trainer", 0).exists()


async def test_a_job_whose_supervisor_cannot_write_its_record_does_not_outlive_it(
    data: DataDirectory,
) -> None:
    """As on a full disk: the job has begun by then."""
    data.supervisors.rmdir()
    record = trainer(data)
    await node_jobs(data).start(record, {})
    assert record.ended and record.reason is EndReason.PREPARATION_FAILED
    assert processes.marked(record.job_id) == []


async def test_a_supervisor_of_an_earlier_agent_that_has_just_begun_is_waited_for(
    data: DataDirectory,
) -> None:
    """The agent was killed a moment after it had started the job: the next one must not take the job for lost."""
    record, jobs = trainer(data), node_jobs(data)
    supervision = data.supervision("att_1", "trainer", 0)
    supervision.mkdir(parents=True)
    with (supervision / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start = asyncio.create_task(jobs.start(record, {}))
        await asyncio.wait({start}, timeout=2)
        assert not start.done()
        me = find_process(os.getpid())
        assert me is not None
        supervisor = SupervisorRecord(
            job_id=record.job_id, incarnation=0, directory=str(supervision), boot_id=me.boot_id, pid=me.pid,
            start_ticks=me.start_ticks, job_pid=me.pid, pgid=me.pid,
        )  # fmt: skip
        write_json(data.supervisor(record.job_id), supervisor)
        await asyncio.wait_for(start, 60)
        assert not record.ended
        assert jobs.observe()[record.job_id].phase is Phase.ALIVE
