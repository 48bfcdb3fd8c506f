"""The SDK's models, which are generated from the control plane's OpenAPI document."""

from __future__ import annotations

from oolong.client import models


def test_values_and_fields_of_a_newer_server_are_accepted() -> None:
    node = models.Named.model_validate({"id": "node_1", "name": "a", "added": 1})
    assert node.model_extra == {"added": 1}
    stage = {"name": "new_stage", "title": "", "state": "new_state", "detail": ""}
    assert models.BootStage.model_validate(stage).state == "new_state"


def test_a_run_needs_attention_when_a_failure_paused_it() -> None:
    run = models.Run.model_construct(status="PAUSED", fault="user")
    assert run.needs_attention and not run.ended
    assert not models.Run.model_construct(status="PAUSED", fault="none").needs_attention
