"""All attacks."""

from __future__ import annotations

from tests.sandbox.attack_cases import kernel, memory_and_disk, network, processes, secret_files

ATTACKS = (
    *processes.ATTACKS,
    *memory_and_disk.ATTACKS,
    *network.ATTACKS,
    *secret_files.ATTACKS,
    *kernel.ATTACKS,
)
