"""The node's sandbox, examined once for the tests that run code."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.sandbox import Findings, examine
from tests.support.isolation import require_isolation


@pytest.fixture(scope="session")
def findings() -> Findings:
    return examine(slots=2)


@pytest.fixture
async def sandboxes(findings: Findings) -> AsyncIterator[Sandboxes]:
    require_isolation(findings.capabilities)
    made = Sandboxes.of(findings, slots=2)
    yield made
    await made.close()
