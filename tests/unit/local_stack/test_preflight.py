"""Preflight reports all failures at once, each with a fix."""

from dataclasses import replace

import pytest

from local_stack import preflight
from local_stack.preflight import GIGABYTE, Machine, run_checks
from oolong import cuda_host

HEALTHY = Machine(
    python=(3, 11),
    has_venv=True,
    system="Linux",
    architecture="x86_64",
    glibc=(2, 36),
    memory_total_bytes=8 * GIGABYTE,
    memory_available_bytes=6 * GIGABYTE,
    root_path="/home/alice/oolong",
    disk_free_bytes={"environments": 20 * GIGABYTE, "checkout": 20 * GIGABYTE, "data": 20 * GIGABYTE},
    disk_no_exec=False,
    environments_ready=False,
    loopback_error="",
    shared_memory_writable=True,
    has_lscpu=True,
    is_root=False,
    has_apt=True,
    system_python=(3, 11),
    gpus=(),
)


def _failed(machine: Machine) -> dict[str, preflight.CheckResult]:
    return {result.name: result for result in run_checks(machine) if not result.ok}


def test_suitable_machine_passes_every_check():
    assert not _failed(HEALTHY)


def test_all_failures_are_reported_at_once_with_a_fix():
    bad = replace(
        HEALTHY,
        python=(3, 12),
        has_venv=False,
        architecture="aarch64",
        memory_total_bytes=4 * GIGABYTE,
        disk_free_bytes={"environments": GIGABYTE, "checkout": GIGABYTE, "data": GIGABYTE},
        root_path="/home/a:b",
        loopback_error="no connection",
        shared_memory_writable=False,
        has_lscpu=False,
    )
    failed = _failed(bad)
    assert set(failed) == {result.name for result in run_checks(HEALTHY)}
    assert all(result.fix for result in failed.values())


def test_8_gb_machine_with_reserved_memory_is_accepted():
    assert not _failed(replace(HEALTHY, memory_total_bytes=int(7.3 * GIGABYTE)))
    assert "memory" in _failed(replace(HEALTHY, memory_total_bytes=int(6.9 * GIGABYTE)))


def test_less_disk_is_required_after_setup():
    little = {"environments": 3 * GIGABYTE, "checkout": 3 * GIGABYTE, "data": 3 * GIGABYTE}
    assert "disk" in _failed(replace(HEALTHY, disk_free_bytes=little))
    assert not _failed(replace(HEALTHY, disk_free_bytes=little, environments_ready=True))


def test_cuda_packages_require_more_disk():
    disk = {"environments": 12 * GIGABYTE, "checkout": 12 * GIGABYTE, "data": 12 * GIGABYTE}
    assert "disk" not in _failed(replace(HEALTHY, disk_free_bytes=disk))
    assert "disk" in _failed(replace(HEALTHY, disk_free_bytes=disk, cuda=cuda_host.inspect_cuda({})))


def test_only_the_full_disk_is_reported():
    disks = {"environments": GIGABYTE, "checkout": 50 * GIGABYTE, "data": 50 * GIGABYTE}
    assert _failed(replace(HEALTHY, disk_free_bytes=disks))["disk"].detail.endswith("for environments")


@pytest.mark.parametrize(
    ("system_python", "package"), [((3, 11), "python3-venv"), ((3, 12), "python3.11-venv")]
)
def test_venv_package_matches_the_running_python(system_python, package):
    machine = replace(HEALTHY, has_venv=False, system_python=system_python)
    assert _failed(machine)["venv"].fix == f"apt-get install {package}"


@pytest.mark.parametrize("glibc", [None, (2, 31)])
def test_old_or_missing_glibc_is_rejected(glibc):
    assert "glibc 2.34" in _failed(replace(HEALTHY, glibc=glibc))["platform"].detail


def test_machine_without_a_sandbox_passes_with_a_note():
    bare = replace(HEALTHY, namespace_refusal="user namespaces are refused: No space left on device")
    assert not _failed(bare)
    note, command = preflight.sandbox_note(bare)
    assert "user namespaces are refused" in note and "exact_match" in note and "code reward" in note
    assert command.strip().startswith("To enable it: ")
    assert preflight.sandbox_note(HEALTHY) == []
