from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpu_agents.agent.api import AgentApi
from gpu_agents.agent.settings import DataDirectory
from tests.support.scripted_control_plane import CREDENTIAL, ScriptedControlPlane


@pytest.fixture
def control_plane() -> Iterator[ScriptedControlPlane]:
    with ScriptedControlPlane().serve() as server:
        yield server


@pytest.fixture
async def api(control_plane: ScriptedControlPlane) -> AsyncIterator[AgentApi]:
    api = AgentApi(control_plane.url, CREDENTIAL)
    yield api
    await api.close()


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    data = DataDirectory(tmp_path / "agent")
    data.create()
    return data
