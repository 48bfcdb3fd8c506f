"""Changes of a run that continues: refused with their field, folded into one state, carried to the node."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.runs.models import Run


def change(person: Any, run: Any, **body: Any) -> Any:
    return person.post(f"/runs/{run['id']}/runtime", body)


def test_changes_reach_the_node_folded_into_one_state(alice: Any, node: Any, start: Any) -> None:
    machine = node()
    run = start(machine)
    assert machine.beat().attempts[0].live.revision == 0
    first = change(alice, run, changes={"staleness": {"max": 2}, "trainer": {"learning_rate": 1e-5}})
    assert first.status_code == 202
    live = {"max_staleness": 2, "max_concurrent_groups": None, "learning_rate": 1e-5, "engines": None}
    assert first.json()["live"] == live
    assert first.json()["spec"] == run["spec"], "the resolved spec never changes"
    change(alice, run, changes={"rollout": {"max_concurrent_groups": 8}}, checkpoint=True)
    live = machine.beat().attempts[0].live
    assert (live.revision, live.max_staleness, live.max_concurrent_groups, live.learning_rate) == (
        2,
        2,
        8,
        1e-5,
    )
    assert (live.checkpoint_requests, live.evaluation_requests) == (1, 0)
    asked = [event["message"] for event in alice.events(run["id"]) if event["kind"] == "change_asked"]
    assert asked == [
        "alice requested staleness.max=2, trainer.learning_rate=1e-05",
        "alice requested rollout.max_concurrent_groups=8, a checkpoint now",
    ]


def test_name_and_settings_change_together_or_not_at_all(alice: Any, node: Any, start: Any) -> None:
    run = start(node())
    refused = change(alice, run, name="wider", tags=["a"], changes={"staleness": {"max": -1}})
    assert refused.status_code == 422
    assert (
        change(alice, run, name="wider", priority=600, changes={"staleness": {"max": 2}}).status_code == 409
    )
    shown = alice.get(f"/runs/{run['id']}").json()
    assert (shown["name"], shown["tags"], shown["live"]) == (run["name"], run["tags"], run["live"])
    assert not {"edited", "change_asked"} & {event["kind"] for event in alice.events(run["id"])}
    changed = change(alice, run, name="wider", tags=["a"], changes={"staleness": {"max": 2}})
    assert changed.status_code == 202
    shown = changed.json()
    assert (shown["name"], shown["tags"], shown["live"]["max_staleness"]) == ("wider", ["a"], 2)
    assert change(alice, run, notes="alone").json()["notes"] == "alone"


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        (
            {"changes": {"trainer": {"groups_per_step": 8}}},
            "/changes/trainer/groups_per_step",
            "clone the run",
        ),
        ({"changes": {"staleness": {"max": -1}}}, "/changes/staleness/max", "at least 0"),
        ({"changes": {"trainer": {"learning_rate": 0}}}, "/changes/trainer/learning_rate", "it is 0"),
        (
            {"changes": {"rollout": {"max_concurrent_groups": 0}}},
            "/changes/rollout/max_concurrent_groups",
            "it is 0",
        ),
        ({"checkpoint": "soon"}, "/checkpoint", "it is 'soon'"),
        ({"changes": {"staleness": {"max": None}}}, "/changes/staleness/max", "null"),
        ({"changes": {"staleness": 3}}, "/changes/staleness", "cannot change"),
        ({"evaluate": True}, "/evaluate", "no evaluation section"),
        ({"change": {}}, "/change", "unknown key"),
    ],
)
def test_what_cannot_change_is_refused_with_its_field(
    alice: Any, node: Any, start: Any, body: Any, pointer: str, says: str
) -> None:
    run = start(node())
    refused = change(alice, run, **body)
    assert refused.status_code == 422, refused.content
    error = refused.json()["errors"][0]
    assert error["pointer"] == pointer and says in error["message"]
    assert Run.objects.get().live == {}


def test_an_empty_change_an_ended_run_and_a_change_before_the_start_are_rejected(
    alice: Any, person: Any
) -> None:
    run = alice.run()
    assert change(alice, run).status_code == 422
    refused = change(alice, run, checkpoint=True)
    assert (refused.status_code, refused.json()["code"]) == (409, "not_running")
    assert change(alice, run, changes={"staleness": {"max": 9}}).json()["live"]["max_staleness"] == 9
    assert change(person("charlie", team="blue"), run, checkpoint=True).status_code == 404
    alice.post(f"/runs/{run['id']}/cancel")
    assert change(alice, run, changes={"staleness": {"max": 1}}).json()["code"] == "has_ended"


@pytest.mark.parametrize("value", ["3", 3.0])
def test_a_value_in_another_type_is_the_specs_own_for_the_node_too(
    alice: Any, node: Any, start: Any, value: Any
) -> None:
    """Every later heartbeat of the node reads it: one that cannot be read would silence all runs there."""
    machine = node()
    run = start(machine)
    changed = change(
        alice, run, changes={"staleness": {"max": value}, "rollout": {"max_concurrent_groups": value}}
    )
    assert changed.status_code == 202, changed.content
    assert changed.json()["live"]["max_staleness"] == 3
    live = machine.beat().attempts[0].live
    assert (live.max_staleness, live.max_concurrent_groups) == (3, 3)
    assert type(live.max_staleness) is int
