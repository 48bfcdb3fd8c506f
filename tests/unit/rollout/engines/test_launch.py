"""The command line of an engine: what a GPU that is shared with the trainer needs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gpu_agents.job import Job
from gpu_agents.rollout.engines.client import EngineClient, ModelLimits
from gpu_agents.rollout.engines.errors import EngineConfigRejected, EngineUnavailable
from gpu_agents.rollout.engines.launch import (
    ENGINE_LOG,
    GUARDED_PORTS,
    EngineProcess,
    LaunchPlan,
    command,
    environment,
)
from gpu_agents.rollout.worker.__main__ import engine_memory_fraction, launch_plan
from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec import LoraSection
from tests.support.cuda_toolkit import make_toolkit
from tests.support.tiny_specs import tiny_run_spec


def plan(device: str, fraction: float | None) -> LaunchPlan:
    return LaunchPlan(
        node_python="python", model_directory="m", port=1, api_key="k", device=device, dtype="bfloat16",
        max_running_requests=8, max_total_tokens=64, seed=1, directory=Path(), visible_devices="0",
        memory_fraction=fraction,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("device", "fraction", "said"),
    [("cuda", None, None), ("cuda", 0.35, "0.35"), ("cpu", 0.35, "0.3")],
    ids=["the engine's own", "as configured", "a processor's is fixed"],
)
def test_the_memory_fraction_of_an_engine(device: str, fraction: float | None, said: str | None) -> None:
    words = command(plan(device, fraction))
    found = words[words.index("--mem-fraction-static") + 1] if "--mem-fraction-static" in words else None
    assert found == said


def test_deterministic_inference_is_asked_of_an_engine_on_a_gpu_alone() -> None:
    flag = "--enable-deterministic-inference"
    assert flag not in command(plan("cuda", None))
    assert flag in command(dataclasses.replace(plan("cuda", None), deterministic=True))


def test_an_engine_of_a_lora_run_takes_adapters_of_its_rank_and_of_all_layers_that_it_fuses() -> None:
    lora = LoraSection(rank=8, targets=["v_proj", "o_proj"])
    on_cpu, on_gpu = (
        command(dataclasses.replace(plan(device, None), lora=lora)) for device in ("cpu", "cuda")
    )
    for words in (on_cpu, on_gpu):
        assert "--enable-lora" in words and words[words.index("--max-lora-rank") + 1] == "8"
        assert words[words.index("--lora-target-modules") + 1 :] == ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert on_cpu[on_cpu.index("--lora-backend") + 1] == "torch_native"
    assert "--lora-backend" not in on_gpu
    assert "--enable-lora" not in command(plan("cpu", None))


def test_repeatable_sampling_on_a_cpu_is_refused_with_its_reason(tmp_path: Path) -> None:
    spec = tiny_run_spec({
        "name": "n", "model": {"base_model": "m"}, "dataset": {"version": "d@1"},
        "rollout": {"repeatable_sampling": True}, "trainer": {"dtype": "bfloat16"},
    })  # fmt: skip

    def planned(device: str) -> LaunchPlan:
        attempt = AttemptFile(
            run_id="run_1", attempt_id="att_1", attempt_number=1, epoch=1, spec=spec.model_dump(mode="json"),
            directory=str(tmp_path), model_directory="m", dataset_file="", device=device, engine_ports=[1],
        )  # fmt: skip
        job = JobFile(job_id="j", name="rollout-0", kind=JobKind.ROLLOUT)
        return launch_plan(Job(directory=tmp_path, job=job, attempt=attempt, began_at=0.0), spec)

    assert planned("cuda").deterministic
    with pytest.raises(EngineConfigRejected, match=r"rollout\.repeatable_sampling: true needs a GPU"):
        planned("cpu")


def test_an_engine_on_a_gpu_finds_the_machines_own_driver_and_sees_its_slots_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolkit = make_toolkit(tmp_path / "cuda")
    of_the_machine = {
        "LD_LIBRARY_PATH": "/driver",
        "CUDA_HOME": str(toolkit),
        "CC": "gcc-12",
        "CXX": "g++-12",
    }
    for name, value in {**of_the_machine, "OOLONG_TOKEN": "secret"}.items():
        monkeypatch.setenv(name, value)
    on_gpu, on_cpu = environment(plan("cuda", None)), environment(plan("cpu", None))
    assert {name: on_gpu[name] for name in of_the_machine} == of_the_machine
    assert on_gpu["CUDA_VISIBLE_DEVICES"] == "0"
    assert on_gpu["PYTHONPATH"] == str(
        GUARDED_PORTS
    )  # and nothing of the worker's, nor the stand-in of a CPU
    assert not {*of_the_machine, "CUDA_VISIBLE_DEVICES"} & set(on_cpu)
    assert "OOLONG_TOKEN" not in on_gpu.keys() | on_cpu.keys()


def test_an_engine_on_a_gpu_finds_ninja_beside_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    on_gpu = dataclasses.replace(plan("cuda", None), node_python="/node/bin/python")
    assert environment(on_gpu)["PATH"] == "/node/bin:/usr/bin"
    assert environment(dataclasses.replace(on_gpu, device="cpu"))["PATH"] == "/usr/bin"


def test_an_engine_on_a_gpu_samples_with_torch_and_computes_logits_in_float32() -> None:
    on_gpu, on_cpu = command(plan("cuda", None)), command(plan("cpu", None))
    assert on_gpu[on_gpu.index("--sampling-backend") + 1] == "pytorch"
    assert "--enable-fp32-lm-head" in on_gpu and "--enable-fp32-lm-head" not in on_cpu


def test_an_engine_on_a_shared_gpu_takes_its_share_unless_the_spec_says_otherwise() -> None:
    assert engine_memory_fraction(None, gpu_share=1.0) is None
    assert engine_memory_fraction(None, gpu_share=0.5) == 0.4
    assert engine_memory_fraction(0.7, gpu_share=0.5) == 0.7


async def test_the_end_of_the_engines_own_log_is_in_the_reason_of_a_failed_boot(tmp_path: Path) -> None:
    """Lines of an earlier incarnation in the same file are left out, and so is the engine's key."""
    (tmp_path / ENGINE_LOG).write_text("an older engine\n")
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\nseq 1 100\n"
        "printf '/lib/beta.py:12: UserWarning: in beta\\n  warnings.warn(BETA)\\n'\n"
        "echo key=the-engines-key\necho CUDA out of memory >&2\nexit 3\n"
    )
    script.chmod(0o755)
    own = dataclasses.replace(
        plan("cpu", None), node_python=str(script), directory=tmp_path, api_key="the-engines-key"
    )
    process = await EngineProcess.start(own)
    await process.wait()
    client = EngineClient(own.port, own.api_key, ModelLimits(vocabulary=10, context_tokens=10))
    try:
        with pytest.raises(EngineUnavailable) as refused:
            await process.wait_until_serving(client)
    finally:
        await client.close()
    said = str(refused.value)
    assert said.startswith(
        "the engine ended with status 3 while it booted: CUDA out of memory\n"
    ) and said.endswith("key=[key]\nCUDA out of memory")
    assert "100\n" in said and "an older engine" not in said and "\n50\n" not in said
    assert "beta" not in said and "warnings.warn" not in said
