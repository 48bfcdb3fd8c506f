from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.small_runs import Inputs, lively_model, upload_inputs
from tests.support.stack import Stack, running_stack


@pytest.fixture(scope="module")
def stack(
    services_folder: Path, postgres_url: str, node_python: Path, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    with running_stack(
        services_folder / request.path.stem, postgres_url=postgres_url, node_python=node_python,
    ) as stack:  # fmt: skip
        yield stack
        if request.session.testsfailed:
            print(stack.said())


@pytest.fixture(scope="module")
def inputs(stack: Stack) -> Inputs:
    return upload_inputs(stack, lively_model(stack.folder / "model", node_python=stack.node_python))
