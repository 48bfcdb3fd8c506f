from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

# Imported inside the fixtures: pytest reads this file before Django is set up.


@pytest_asyncio.fixture
async def hub(transactional_db: None) -> AsyncIterator[Any]:
    from control_plane.core.stream import event_hub as hubs

    hub = hubs.hub()
    yield hub
    await hub.close()


@pytest.fixture
def reader(hub: Any) -> Callable[..., Any]:
    from control_plane.core.stream.event_hub import SubscriberQueue
    from tests.unit.control_plane.telemetry.streaming import Reader

    return lambda **mailbox: Reader(hub, SubscriberQueue(**mailbox))
