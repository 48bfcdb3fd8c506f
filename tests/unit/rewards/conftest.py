"""The node's sandbox, examined once for the tests that run code."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.sandbox import ProbeResult, probe_sandbox
from tests.support.isolation import require_isolation


@pytest.fixture(scope="session")
def probe_result() -> ProbeResult:
    return probe_sandbox(slots=2)


@pytest.fixture
async def sandboxes(probe_result: ProbeResult) -> AsyncIterator[Sandboxes]:
    require_isolation(probe_result.capabilities)
    made = Sandboxes.of(probe_result, slots=2)
    yield made
    await made.close()
