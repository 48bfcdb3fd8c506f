"""The trainer's tests need torch, so they run with the Python of the node environment."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.torch)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Qwen3 as a Hugging Face directory."""
    import torch

    from trainers.models.tiny import make_tiny_model

    torch.set_num_threads(1)
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), seed=3)


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    """A process group with one rank."""
    from trainers.distributed.context import init_distributed, shutdown_distributed

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
        }.items():
            patch.setenv(name, value)
        joined = init_distributed("cpu")
    yield joined
    shutdown_distributed()
