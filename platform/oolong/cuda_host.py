"""What CUDA needs of a machine: driver, toolkit, compilers; and what is missing, with a way out.

SGLang compiles kernels at first use and torch's wheel brings the runtime, not the compiler, so a GPU node needs more
than a driver. Standard library only: the preflight, the agent and the tests of the GPU lane ask here.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The pinned torch is built for CUDA 13.0, which the driver branch R580 is the first to serve.
CUDA_VERSION_NEEDED = 13000
DRIVER_NEEDED = "R580"
BFLOAT16_CAPABILITY = (8, 0)  # Ampere; older GPUs have no bfloat16 arithmetic
# Variables through which a machine's owner names its driver, toolkit and compilers: trainers and engines get them.
PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CC", "CXX")

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


@dataclass(frozen=True)
class Driver:
    """Driver facts reported by libcuda."""

    cuda_version: int  # 13000 is CUDA 13.0: the newest that the driver serves
    capabilities: tuple[tuple[int, int], ...]  # compute capability of each visible GPU


@dataclass(frozen=True)
class CudaHost:
    """Facts of one machine; `missing` decides what they mean."""

    driver: Driver | None
    toolkit: Path | None
    compiler: str  # of C++; "" when there is none
    python_headers: bool


@dataclass(frozen=True)
class Missing:
    what: str
    way_out: str


def inspect_cuda(environ: Mapping[str, str]) -> CudaHost:
    """Read the facts. A fact that cannot be read counts as missing."""
    return CudaHost(
        driver=read_driver(),
        toolkit=find_toolkit(environ),
        compiler=shutil.which(environ.get("CXX", "g++"), path=environ.get("PATH")) or "",
        python_headers=Path(sysconfig.get_path("include"), "Python.h").is_file(),
    )


def missing(host: CudaHost) -> list[Missing]:
    """List everything that prevents engines or trainers from using the GPUs, in the order to fix it."""
    found = []
    if host.driver is None:
        found.append(Missing("the NVIDIA driver (libcuda.so.1) does not load", "install the NVIDIA driver"))
    else:
        found += _missing_of_driver(host.driver)
    if host.toolkit is None:
        found.append(
            Missing(
                "no CUDA toolkit: engines compile kernels with nvcc at first use",
                "install CUDA toolkit 13.0 (nvcc, headers, libcudart.so), or set CUDA_HOME to where it is",
            )
        )
    if not host.compiler:
        found.append(Missing("no C++ compiler for nvcc and Triton", "apt-get install g++, or set CXX"))
    if not host.python_headers:
        found.append(Missing("no Python.h, which Triton compiles against", "apt-get install python3.11-dev"))
    return found


def _missing_of_driver(driver: Driver) -> list[Missing]:
    served = f"{driver.cuda_version // 1000}.{driver.cuda_version % 1000 // 10}"
    if driver.cuda_version < CUDA_VERSION_NEEDED:
        return [
            Missing(
                f"the NVIDIA driver serves CUDA {served}; torch needs 13.0",
                f"install driver {DRIVER_NEEDED} or newer",
            )
        ]
    if not driver.capabilities:
        return [Missing("the driver shows no GPU", "check nvidia-smi and CUDA_VISIBLE_DEVICES")]
    old = [capability for capability in driver.capabilities if capability < BFLOAT16_CAPABILITY]
    if old:
        return [
            Missing(
                f"a GPU has compute capability {old[0][0]}.{old[0][1]}; bfloat16 needs 8.0",
                "leave it out with CUDA_VISIBLE_DEVICES",
            )
        ]
    return []


def find_toolkit(environ: Mapping[str, str]) -> Path | None:
    """The first CUDA toolkit that can compile and link: CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda."""
    named = [Path(environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    nvcc = shutil.which("nvcc", path=environ.get("PATH"))
    on_path = [Path(nvcc).resolve().parents[1]] if nvcc else []
    return next((path for path in (*named, *on_path, Path("/usr/local/cuda")) if is_toolkit(path)), None)


def is_toolkit(path: Path) -> bool:
    """Whether nvcc, the runtime's headers and a library to link against are there, where SGLang looks for them."""
    return all(
        (path / name).exists() for name in ("bin/nvcc", "include/cuda_runtime.h", "lib64/libcudart.so")
    )


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a process that uses CUDA inherits of `environ`, with CUDA_HOME set where a toolkit is found."""
    inherited = {name: environ[name] for name in PASSED_ON if environ.get(name)}
    toolkit = find_toolkit(environ)
    return inherited | ({"CUDA_HOME": str(toolkit)} if toolkit is not None else {})


def read_driver() -> Driver | None:
    """Query libcuda. None if it does not load or initialize."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version, count = ctypes.c_int(), ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return Driver(version.value, ())
    return Driver(version.value, tuple(_capability(cuda, number) for number in range(count.value)))


def _capability(cuda: ctypes.CDLL, number: int) -> tuple[int, int]:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device)
    return major.value, minor.value


def main() -> None:
    """Print what this machine lacks for CUDA, one line each; `python -m oolong.cuda_host`."""
    for lack in missing(inspect_cuda(os.environ)):
        print(f"{lack.what}: {lack.way_out}")


if __name__ == "__main__":
    main()
