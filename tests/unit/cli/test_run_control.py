"""Pausing, making runs from runs, and telling them apart, on the command line."""

from __future__ import annotations

import json

import pytest

from oolong.cli.run_compare import differences
from oolong.client import models
from tests.support.scripted_api import Answer, ScriptedApi, page, problem, run, shaped
from tests.unit.cli.conftest import Oolong


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_verb_is_one_post_and_prints_the_new_state(api: ScriptedApi, oolong: Oolong, verb: str) -> None:
    api.script[f"POST runs/run_1/{verb}"] = Answer(run("PAUSING"), status=202)
    done = oolong("run", verb, "run_1")
    assert (done.returncode, done.stdout.strip()) == (0, "PAUSING"), done.stderr
    assert api.asked[0].headers["Idempotency-Key"]


def test_a_refused_pause_says_why(api: ScriptedApi, oolong: Oolong) -> None:
    api.script["POST runs/run_1/pause"] = Answer(
        problem("cannot_pause", "the run is FAILED and cannot be paused"), status=409
    )
    done = oolong("run", "pause", "run_1")
    assert done.returncode == 2 and "cannot be paused" in done.stderr


def test_clone_sends_the_changes_as_one_patch_and_prints_the_new_id(api: ScriptedApi, oolong: Oolong) -> None:
    api.script["POST runs/run_1/clone"] = Answer(run("QUEUED") | {"id": "run_2"}, status=201)
    done = oolong(
        "run", "clone", "run_1", "--name", "wider", "--checkpoint", "latest",
        "--set", "staleness.max=8", "--set", "trainer.learning_rate=null", "--set", "trainer.adam_betas=[0.9, 0.95]",
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "run_2"), done.stderr
    assert json.loads(api.asked[0].body) == {
        "changes": {
            "name": "wider",
            "staleness": {"max": 8},
            "trainer": {"learning_rate": None, "adam_betas": [0.9, 0.95]},
        },
        "checkpoint": "latest",
    }


def test_a_change_that_is_no_assignment_is_wrong_usage(api: ScriptedApi, oolong: Oolong) -> None:
    done = oolong("run", "clone", "run_1", "--set", "staleness.max")
    assert done.returncode == 2 and "FIELD=VALUE" in done.stderr
    assert api.asked == []


def test_set_sends_what_is_given_and_needs_something(api: ScriptedApi, oolong: Oolong) -> None:
    api.script["PATCH runs/run_1"] = Answer(run("QUEUED"))
    done = oolong("run", "set", "run_1", "--tag", "a", "--tag", "b", "--priority", "900")
    assert done.returncode == 0, done.stderr
    assert json.loads(api.asked[0].body) == {"tags": ["a", "b"], "priority": 900}
    assert oolong("run", "set", "run_1").returncode == 2
    api.script["POST runs/run_1/runtime"] = Answer(run("RUNNING"))
    assert oolong("run", "set", "run_1", "--set", "staleness.max=2", "--notes", "wider").returncode == 0
    assert api.paths()[1:] == ["POST runs/run_1/runtime"], "one request: nothing stays half done"
    sent = {"changes": {"staleness": {"max": 2}}, "checkpoint": False, "evaluate": False, "notes": "wider"}
    assert json.loads(api.asked[1].body) == sent


def test_metrics_lists_the_names_of_what_was_measured(api: ScriptedApi, oolong: Oolong) -> None:
    name = shaped(models.MetricName, name="reward/mean", axis="step", sources=["trainer"], last_x=2)
    api.script["GET runs/run_1/metric-names"] = Answer(page(name))
    assert oolong("run", "metrics", "run_1").stdout == "reward/mean\t\tstep\t2\ttrainer\n"


def test_diff_shows_only_fields_that_differ(api: ScriptedApi, oolong: Oolong) -> None:
    api.script["GET runs/run_1"] = Answer(run("RUNNING") | {"spec": {"staleness": {"max": 4}, "seed": 1}})
    api.script["GET runs/run_2"] = Answer(
        run("FAILED") | {"id": "run_2", "spec": {"staleness": {"max": 8}, "seed": 1}}
    )
    done = oolong("run", "diff", "run_1", "run_2")
    lines = done.stdout.splitlines()
    assert lines[0] == "staleness.max\t4\t8", done.stderr
    assert "(status)\tRUNNING\tFAILED" in lines
    assert not any(line.startswith("seed") for line in lines)


def test_a_section_that_one_run_lacks_differs_by_each_field_of_the_other() -> None:
    one, two = {"evaluation": None, "a": 1}, {"evaluation": {"split": "eval", "prompts": 8}, "a": 1}
    assert differences(one, two) == {"evaluation.split": (None, "eval"), "evaluation.prompts": (None, 8)}
