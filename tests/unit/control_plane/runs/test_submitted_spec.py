"""A run keeps its spec as it was written, beside the resolved one: names stay names, and defaults stay absent."""

from __future__ import annotations

from typing import Any

from control_plane.runs.models import Run
from tests.unit.control_plane.runs.test_pause import store_checkpoint


def test_a_run_keeps_the_spec_as_it_was_written(alice: Any) -> None:
    written = alice.spec(dataset={"version": "sums@latest"})
    run = alice.run(dataset={"version": "sums@latest"})
    assert run["submitted_spec"] == written
    assert run["spec"]["dataset"]["version"].startswith("dsv_")
    assert "submitted_spec" not in alice.get("/runs").json()["data"][0], "a list has no room for it"


def test_a_clone_has_the_written_spec_with_its_changes_and_a_retry_has_it_as_it_is(alice: Any) -> None:
    run = alice.run(trainer={"total_train_steps": 5, "learning_rate": 0.1})
    changes = {"name": "wider", "staleness": {"max": 8}, "trainer": {"learning_rate": None}}
    clone = alice.post(f"/runs/{run['id']}/clone", {"changes": changes}).json()
    written = clone["submitted_spec"]
    assert (written["name"], written["staleness"], written["model"]) == (
        "wider", {"max": 8}, {"base_model": "tiny"},
    )  # fmt: skip
    assert written["trainer"]["total_train_steps"] == 5 and "learning_rate" not in written["trainer"]
    alice.post(f"/runs/{run['id']}/cancel")
    assert alice.post(f"/runs/{run['id']}/retry").json()["submitted_spec"] == run["submitted_spec"]


def test_a_fork_begins_with_the_checkpoint_and_keeps_its_adapters(
    alice: Any, node: Any, start: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    store_checkpoint(machine, run, commit_checkpoint, step=5)
    lora = {"model": {"lora": {"rank": 4, "alpha": 8}}}
    fork = alice.post(f"/runs/{run['id']}/clone", {"checkpoint": "latest", "changes": lora}).json()
    checkpoint = fork["model"]["id"]
    assert fork["submitted_spec"]["model"] == {"checkpoint": checkpoint, "lora": {"rank": 4, "alpha": 8}}
    assert fork["spec"]["model"]["lora"]["rank"] == 4


def test_the_clone_of_a_run_without_a_written_spec_has_none(alice: Any) -> None:
    run = alice.run()
    Run.objects.filter(pk=run["id"]).update(submitted_spec=None)  # as before it was kept
    assert alice.see(run["id"])["submitted_spec"] is None
    clone = alice.post(f"/runs/{run['id']}/clone", {"changes": {"name": "again"}}).json()
    assert (clone["name"], clone["submitted_spec"]) == ("again", None)


def test_a_draft_keeps_what_was_written_last_also_once_it_is_submitted(alice: Any) -> None:
    draft = alice.post("/runs", {"spec": alice.spec(name="first"), "draft": True}).json()
    assert draft["submitted_spec"] == alice.spec(name="first")
    alice.call("PATCH", f"/runs/{draft['id']}", {"spec": alice.spec(name="second")})
    submitted = alice.post(f"/runs/{draft['id']}/submit").json()
    assert submitted["submitted_spec"] == alice.spec(name="second")
