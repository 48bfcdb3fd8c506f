"""The node's sandbox, examined once for the tests that run code."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.sandbox import Findings, examine


@pytest.fixture(scope="session")
def findings() -> Findings:
    return examine(slots=2)


@pytest.fixture
async def sandboxes(findings: Findings) -> AsyncIterator[Sandboxes]:
    if findings.sandbox is None:
        pytest.skip(f"no sandbox here: {findings.capabilities.message}; {findings.capabilities.command}")
    made = Sandboxes.of(findings, slots=2)
    yield made
    await made.close()
