"""What a machine offers to the pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_agents.agent import inventory
from gpu_agents.agent.inventory import InventoryError, parse_gpus, take_inventory


def test_a_machine_without_a_gpu_offers_a_slot_per_core(tmp_path: Path) -> None:
    found = take_inventory(tmp_path, device="cpu", slots=0, version="1")
    assert [slot.slot for slot in found.slots] == [f"cpu-{number}" for number in range(found.cpu_count)]
    assert found.cpu_count >= 1 and found.memory_bytes > 0 and found.disk_free_bytes > 0
    assert len(take_inventory(tmp_path, device="cpu", slots=5, version="1").slots) == 5


def test_gpus_are_slots_by_uuid() -> None:
    text = (
        "0, GPU-2f1c, NVIDIA H100 80GB HBM3, 81559, Disabled, 37, 40960, 61, 0\n"
        "1, GPU-77aa, NVIDIA H100 80GB HBM3, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]\n\n"
    )
    good, odd = parse_gpus(text)
    assert (good.slot, good.device, good.memory_bytes, good.healthy) == (
        "GPU-2f1c",
        "cuda",
        81559 * 1024**2,
        True,
    )
    assert (good.utilization, good.memory_used_bytes, good.celsius) == (0.37, 40960 * 1024**2, 61.0)
    assert not odd.healthy and "[N/A]" in odd.reason
    assert (odd.utilization, odd.memory_used_bytes, odd.celsius) == (None, None, None)


def test_a_gpu_with_memory_errors_is_unhealthy() -> None:
    (slot,) = parse_gpus("0, GPU-2f1c, H100, 80000, Disabled, 0, 0, 30, 2\n")
    assert not slot.healthy and slot.reason.startswith("2 memory errors were not corrected")


TWO_GPUS = "0, GPU-2f1c, H100, 80000, Disabled, 0, 0, 30, 0\n1, GPU-77aa, H100, 80000, Disabled, 50, 20000, 40, [N/A]\n"


def test_a_shared_gpu_is_several_slots_that_split_its_memory() -> None:
    slots = parse_gpus(TWO_GPUS, slots_per_gpu=2)
    assert [slot.slot for slot in slots] == ["GPU-2f1c/0", "GPU-2f1c/1", "GPU-77aa/0", "GPU-77aa/1"]
    assert {slot.memory_bytes for slot in slots} == {40000 * 1024**2}
    assert [slot.memory_used_bytes for slot in slots[2:]] == [10000 * 1024**2] * 2


@pytest.mark.parametrize("visible", ["1", "GPU-77aa", "GPU-77"])
def test_only_visible_gpus_are_offered(visible: str) -> None:
    assert [slot.slot for slot in parse_gpus(TWO_GPUS, visible=visible)] == ["GPU-77aa"]


def test_visible_devices_that_name_no_gpu_are_an_error_that_lists_the_gpus() -> None:
    with pytest.raises(
        InventoryError, match=r"CUDA_VISIBLE_DEVICES='7' names none .* 0 \(GPU-2f1c\), 1 \(GPU-77aa\)"
    ):
        parse_gpus(TWO_GPUS, visible="7")


def test_a_gpu_cut_into_mig_instances_is_unhealthy_and_offers_no_memory() -> None:
    (slot,) = parse_gpus("0, GPU-2f1c, A100, 40960, Enabled, [N/A], [N/A], 30, 0\n")
    assert not slot.healthy and slot.memory_bytes == 0
    assert "MIG" in slot.reason and "nvidia-smi -mig 0" in slot.reason


def test_a_machine_that_has_no_gpu_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="lists no GPU"):
        parse_gpus("")
    monkeypatch.setattr(inventory, "NVIDIA_SMI_SECONDS", 60.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InventoryError, match="use device=cpu"):
        inventory.gpu_slots()
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\necho 'Driver/library version mismatch'; exit 18\n")
    broken.chmod(0o755)
    with pytest.raises(InventoryError, match="status 18: Driver/library version mismatch"):
        inventory.gpu_slots()
