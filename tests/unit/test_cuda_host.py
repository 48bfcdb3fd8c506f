"""What CUDA needs of a machine, and the slots of its GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oolong import gpu_slots
from oolong.cuda_host import CudaHost, Driver, environment, find_toolkit, missing
from tests.support.cuda_toolkit import make_toolkit

FIT = CudaHost(
    driver=Driver(13000, ((9, 0),)),
    toolkit=Path("/usr/local/cuda"),
    compiler="/usr/bin/g++",
    python_headers=True,
)


def test_a_machine_with_driver_toolkit_and_compilers_lacks_nothing() -> None:
    assert missing(FIT) == []


@pytest.mark.parametrize(
    ("change", "what", "way_out"),
    [
        ({"driver": None}, "libcuda.so.1", "install the NVIDIA driver"),
        ({"driver": Driver(12080, ((9, 0),))}, "serves CUDA 12.8; torch needs 13.0", "R580"),
        ({"driver": Driver(13000, ())}, "shows no GPU", "CUDA_VISIBLE_DEVICES"),
        ({"driver": Driver(13000, ((9, 0), (7, 5)))}, "capability 7.5", "CUDA_VISIBLE_DEVICES"),
        ({"toolkit": None}, "no CUDA toolkit", "CUDA_HOME"),
        ({"compiler": ""}, "no C++ compiler", "g++"),
        ({"python_headers": False}, "no Python.h", "python3.11-dev"),
    ],
)
def test_each_missing_part_is_named_with_its_way_out(
    change: dict[str, object], what: str, way_out: str
) -> None:
    (found,) = missing(replace(FIT, **change))
    assert what in found.what and way_out in found.way_out


def test_all_missing_parts_are_found_at_once() -> None:
    nothing = CudaHost(driver=None, toolkit=None, compiler="", python_headers=False)
    assert len(missing(nothing)) == 4


def test_a_toolkit_without_a_library_to_link_against_is_passed_over(tmp_path: Path) -> None:
    broken, whole = make_toolkit(tmp_path / "broken"), make_toolkit(tmp_path / "whole")
    (broken / "lib64/libcudart.so").unlink()
    environ = {"CUDA_HOME": str(broken), "PATH": str(whole / "bin")}
    assert find_toolkit(environ) == whole


def test_a_process_on_a_gpu_gets_the_toolkit_that_was_found(tmp_path: Path) -> None:
    toolkit = make_toolkit(tmp_path / "cuda")
    environ = {"PATH": str(toolkit / "bin"), "CXX": "g++-12", "OOLONG_TOKEN": "secret"}
    assert environment(environ) == {"CUDA_HOME": str(toolkit), "CXX": "g++-12"}


def test_slots_of_a_shared_gpu_name_the_gpu_once_for_cuda() -> None:
    assert gpu_slots.slot_names("GPU-1", 1) == ["GPU-1"]
    assert gpu_slots.slot_names("GPU-1", 2) == ["GPU-1/0", "GPU-1/1"]
    assert gpu_slots.visible_devices(["GPU-2/1", "GPU-1/0", "GPU-2/0"]) == "GPU-2,GPU-1"
    assert [gpu_slots.device_of(slot) for slot in ("GPU-1/1", "GPU-1", "cpu-0")] == [
        "GPU-1",
        "GPU-1",
        "cpu-0",
    ]
