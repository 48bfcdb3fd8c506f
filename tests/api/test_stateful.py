"""The document's links lead to its operations: chains of requests, each with names from the answers before it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.api.stateful import follow_links, furnish
from tests.unit.control_plane.access.objects import World

# Linked operations that no chain brings to a good answer, each with the reason.
UNREACHED = {
    "GET /runs/{run_id}/logs/download": "every chain to it names a run whose node has shipped no log yet",
    "POST /dataset-versions/{version_id}/statistics": "counts with a stored model's tokenizer; the world has none",
    "POST /uploads/fetch": "fetches from an address outside",
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_links_lead_to_every_operation_but_the_named(world: World, settings: Any) -> None:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, hub_url="https://hub.test")
    furnish(world)
    found = follow_links(world, rounds=6, unreachable=set(UNREACHED))
    reached = found.linked & found.answered[2]
    print(f"{len(reached)} of {len(found.linked)} operations answered well in {found.requests} requests")
    unreached = {name: found.notes.get(name, "never asked") for name in sorted(found.linked - reached)}
    unnamed = [f"{name}: {answer}" for name, answer in unreached.items() if name not in UNREACHED]
    assert found.failures == [], "\n".join(found.failures)
    assert unnamed == [], "links lead to no good answer:\n" + "\n".join(unnamed)
    assert reached & UNREACHED.keys() == set(), "reached after all: take them out of UNREACHED"
    assert UNREACHED.keys() <= found.linked, "UNREACHED names what no link leads to"
