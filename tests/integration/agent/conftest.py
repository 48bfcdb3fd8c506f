from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.scripted_control_plane import ScriptedControlPlane


@pytest.fixture
def control_plane() -> Iterator[ScriptedControlPlane]:
    with ScriptedControlPlane().serve() as server:
        yield server
