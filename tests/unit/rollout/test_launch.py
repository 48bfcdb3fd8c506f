"""The command line of an engine: what a GPU that is shared with the trainer needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_agents.rollout.engines.launch import LaunchPlan, command, environment


def plan(device: str, fraction: float | None) -> LaunchPlan:
    return LaunchPlan(
        node_python="python", model_directory="m", port=1, api_key="k", device=device, dtype="bfloat16",
        max_running_requests=8, max_total_tokens=64, seed=1, directory=Path(), visible_devices="0",
        memory_fraction=fraction,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("device", "fraction", "said"),
    [("cuda", None, None), ("cuda", 0.35, "0.35"), ("cpu", 0.35, "0.3")],
    ids=["the engine's own", "as asked", "a processor's is fixed"],
)
def test_the_memory_fraction_of_an_engine(device: str, fraction: float | None, said: str | None) -> None:
    words = command(plan(device, fraction))
    found = words[words.index("--mem-fraction-static") + 1] if "--mem-fraction-static" in words else None
    assert found == said


def test_an_engine_on_a_gpu_finds_the_machines_own_driver_and_sees_its_slots_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("LD_LIBRARY_PATH", "/driver"), ("CUDA_HOME", "/cuda"), ("OOLONG_TOKEN", "secret")):
        monkeypatch.setenv(name, value)
    on_gpu, on_cpu = environment(plan("cuda", None)), environment(plan("cpu", None))
    assert (on_gpu["LD_LIBRARY_PATH"], on_gpu["CUDA_HOME"]) == ("/driver", "/cuda")
    assert on_gpu["CUDA_VISIBLE_DEVICES"] == "0" and "PYTHONPATH" not in on_gpu
    assert not {"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES"} & set(on_cpu)
    assert "OOLONG_TOKEN" not in on_gpu.keys() | on_cpu.keys()
