from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.small_runs import Inputs, lively_model, upload_inputs
from tests.support.stack import Stack, running_stack


@pytest.fixture(scope="session")
def model(services_folder: Path, node_python: Path) -> Path:
    return lively_model(services_folder / "lively-model", node_python=node_python)


@pytest.fixture
def new_stack(
    services_folder: Path, postgres_url: str, node_python: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Stack]]:
    """`new_stack(SETTING="value", …)`: a stack whose control plane has these environment variables."""
    with ExitStack() as exits:
        stacks = []
        failed_before = request.session.testsfailed

        def make(**settings: str) -> Stack:
            folder = services_folder / f"stack-{os.urandom(4).hex()}"
            context = running_stack(
                folder, postgres_url=postgres_url, node_python=node_python, settings=settings
            )
            stacks.append(exits.enter_context(context))
            return stacks[-1]

        yield make
        if request.session.testsfailed > failed_before:
            for stack in stacks:
                print(stack.said())


@pytest.fixture
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack()


@pytest.fixture
def inputs(stack: Stack, model: Path) -> Inputs:
    return upload_inputs(stack, model)
