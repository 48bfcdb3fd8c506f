from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import new_stack, stack  # noqa: F401
from tests.support.slurm import SlurmCluster, SlurmUnavailable, running_cluster


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, services_folder: Path) -> Iterator[SlurmCluster]:
    try:
        with running_cluster(services_folder / tmp_path_factory.mktemp("slurm").name) as found:
            yield found
    except SlurmUnavailable as error:
        pytest.skip(f"Slurm cannot be had here: {error}")
