"""Every operation of the OpenAPI document with much made-up input: no server error, no answer without a credential."""

from __future__ import annotations

import os

import pytest

from tests.api.fuzzing import ask_every_operation
from tests.unit.control_plane.access.objects import World

EXAMPLES = int(os.environ.get("OOLONG_FUZZ_EXAMPLES", "4"))  # of each operation and each of the two modes


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_made_up_input_meets_no_server_error_and_no_open_endpoint(world: World) -> None:
    found = ask_every_operation(world, examples=EXAMPLES)
    print({kind: len(names) for kind, names in found.answered.items()}, found.requests)
    assert found.operations > 100
    assert len(found.answered[2]) > found.operations / 4, "too few handlers were reached"
    assert found.failures == [], "\n".join(found.failures)
