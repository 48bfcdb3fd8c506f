"""The document's links lead to its operations: chains of requests, each with names from the answers before it."""

from __future__ import annotations

import pytest

from tests.api.stateful import follow_links
from tests.unit.control_plane.access.objects import World


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_links_lead_to_operations_that_answer_well(world: World) -> None:
    found = follow_links(world, rounds=8, scenarios=2, steps=60)
    reached = found.linked & found.answered[2]
    print(f"{len(reached)} of {len(found.linked)} operations answered well in {found.requests} requests")
    unreached = {name: found.notes.get(name, "never asked") for name in sorted(found.linked - reached)}
    print("\n".join(f"{name}: {answer}" for name, answer in unreached.items()))
    assert found.failures == [], "\n".join(found.failures)
    assert len(reached) > 0.4 * len(found.linked), f"links lead to few operations: {sorted(unreached)}"
