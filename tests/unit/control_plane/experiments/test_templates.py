"""Templates: parts of a spec under a name, in versions, of a project or a team."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from control_plane.accounts.models import Role
from control_plane.experiments.models import RunTemplate

PART = {"trainer": {"learning_rate": 1e-6, "total_train_steps": 7}, "staleness": {"max": 2}}


def make(person: Any, name: str = "ours", **more: Any) -> Any:
    return person.post("/run-templates", {"name": name, "spec": PART, **more})


def test_a_run_is_made_from_a_template_with_the_rest_over_it(alice: Any) -> None:
    made = make(alice, description="what we always take")
    assert made.status_code == 201, made.content
    assert (made.json()["ref"], made.json()["of_team"]) == ("ours@1", False)
    spec = {
        "name": "a run", "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"},
        "trainer": {"total_train_steps": 9},
    }  # fmt: skip
    run = alice.post("/runs", {"template": "ours", "spec": spec}).json()
    trainer = run["spec"]["trainer"]
    assert (trainer["learning_rate"], trainer["total_train_steps"], run["spec"]["staleness"]["max"]) == (
        1e-6,
        9,
        2,
    )
    again = alice.post(f"/run-templates/{made.json()['id']}/versions", {"spec": {"staleness": {"max": 5}}})
    assert again.json()["ref"] == "ours@2"
    for ref, bound in (("ours", 5), ("ours@2", 5), ("ours@1", 2)):
        shown = alice.post("/runs/validate", {"template": ref, "spec": alice.spec()}).json()
        assert shown["resolved"]["staleness"]["max"] == bound, ref
    assert alice.see(run["id"])["spec"]["staleness"]["max"] == 2, "what was made stays as it is"


def test_presets_are_templates_too_and_ones_own_come_first(alice: Any) -> None:
    planned = alice.post(
        "/runs/plan", {"template": "dr-grpo", "spec": alice.spec(reward={"name": "math"})}
    ).json()
    assert planned["resolved"]["algorithm"]["loss_aggregation"] == "constant"
    make(alice, "dr-grpo")
    own = alice.post("/runs/plan", {"template": "dr-grpo", "spec": alice.spec()}).json()
    assert own["resolved"]["algorithm"]["loss_aggregation"] == "token_mean"


def test_a_checkpoint_or_a_function_takes_the_place_of_what_the_preset_leaves_open(alice: Any) -> None:
    spec = {**alice.spec(), "model": {"checkpoint": "ckpt_none"}, "reward": {"function": "mine@1"}}
    for template in ("letter-sum-rl", "grpo"):
        answer = alice.post("/runs/validate", {"template": template, "spec": spec}).json()
        found = {error["pointer"]: error["code"] for error in answer["errors"]}
        assert found["/model/checkpoint"] == "unknown_checkpoint", template
        assert found["/reward/function"] == "unknown_function", template
        assert not {"/model", "/reward"} & set(found), template
    base = {**alice.spec(), "reward": {"name": "exact_match"}}
    answer = alice.post("/runs/validate", {"template": "letter-sum-rl", "spec": base}).json()
    assert "model_source" not in {error["code"] for error in answer["errors"]}


def test_a_spec_that_names_both_is_refused_as_without_a_template(alice: Any) -> None:
    both = alice.spec(model={"base_model": "tiny", "checkpoint": "ckpt_none"}, reward={"name": "exact_match"})
    answer = alice.post("/runs/validate", {"template": "grpo", "spec": both}).json()
    assert [error["code"] for error in answer["errors"]] == ["model_source"]


def test_a_teams_template_is_in_every_project_of_it_and_made_by_its_admins(alice: Any, person: Any) -> None:
    from control_plane.accounts.models import TeamMembership

    refused = make(alice, for_team=True)
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    TeamMembership.objects.create(user=alice.user, team=alice.project.team, role=Role.ADMIN)
    made = make(alice, for_team=True)
    assert made.status_code == 201 and made.json()["of_team"]
    bob = person("bob", project="other")
    assert [row["ref"] for row in bob.get("/run-templates").json()["data"]] == ["ours@1"]
    gone = bob.call("DELETE", f"/run-templates/{made.json()['id']}")
    assert gone.status_code == 403
    charlie = person("charlie", team="blue")
    assert charlie.get(f"/run-templates/{made.json()['id']}").status_code == 404
    assert alice.call("DELETE", f"/run-templates/{made.json()['id']}").status_code == 204
    assert not RunTemplate.objects.exists()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"spec": {"trainer": {"lerning_rate": 1}}}, "/spec/trainer/lerning_rate"),
        ({"spec": {"staleness": {"max": -1}}}, "/spec/staleness/max"),
        ({"spec": {"dataset": 3}}, "/spec/dataset"),
        ({"name": "Ours!"}, "/name"),
        ({"hue": 1}, "/hue"),
    ],
)
def test_a_template_that_no_spec_could_hold_is_refused(
    alice: Any, body: dict[str, Any], pointer: str
) -> None:
    refused = alice.post("/run-templates", {"name": "ours", "spec": {}, **body})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)
    assert not RunTemplate.objects.exists()


def test_a_misspelled_key_set_to_null_over_a_template_is_refused_by_name(alice: Any) -> None:
    spec = alice.spec(staleness={"maximum": None})
    refused = alice.post("/runs", {"template": "dr-grpo", "spec": spec})
    assert (refused.status_code, refused.json()["code"]) == (422, "spec_invalid")
    assert refused.json()["errors"][0]["pointer"] == "/staleness/maximum"
    correct = alice.post("/runs", {"template": "dr-grpo", "spec": alice.spec(staleness={"max": None})})
    assert correct.status_code == 201, correct.content


@pytest.mark.parametrize("reference", ["nobody", "ours@2", "ours@x", "dr-grpo@1", 3])
def test_a_template_that_is_not_there_is_refused(alice: Any, reference: Any) -> None:
    make(alice)
    refused = alice.post("/runs", {"template": reference, "spec": alice.spec()})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "unknown_template")
    assert make(alice).json()["code"] == "name_taken"


def test_the_command_keeps_and_uses_templates(oolong: Any, alice: Any, tmp_path: Any) -> None:
    (tmp_path / "work" / "part.yaml").write_text(yaml.safe_dump(PART))
    (tmp_path / "work" / "run.yaml").write_text(json.dumps(alice.spec()))
    assert oolong("template", "create", "ours", "-f", "part.yaml").out == "ours@1\n"
    assert oolong("template", "create", "ours", "-f", "part.yaml").out == "ours@2\n"
    assert "ours@2" in oolong("template", "list").out
    assert yaml.safe_load(oolong("template", "get", "ours").out) == PART
    planned = oolong("run", "validate", "-f", "run.yaml", "--template", "ours@1", "--json")
    assert json.loads(planned.out)["resolved"]["staleness"]["max"] == 2
    assert oolong("run", "validate", "-f", "run.yaml", "--template", "nobody").code == 2
    assert oolong("template", "delete", "ours").code == 0
