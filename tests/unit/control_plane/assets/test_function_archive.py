"""Archived functions are hidden and still run; only a function that nothing refers to is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.accounts.models import AuditEntry
from control_plane.assets.models import Function, FunctionVersion
from control_plane.assets.storage import store
from tests.unit.control_plane.assets.test_functions import REWARD, upload

USE = {"function": "contains@1"}


@pytest.fixture
def function(alice: Any) -> str:
    return str(upload(alice).json()["function"]["id"])


def names(person: Any, query: str = "") -> list[str]:
    return [entry["name"] for entry in person.get(f"/functions{query}").json()["data"]]


def archive(person: Any, function: str, archived: bool = True) -> Any:
    return person.call("PATCH", f"/functions/{function}", {"archived": archived})


def audited(kind: str) -> int:
    return AuditEntry.objects.filter(action=f"project.{kind}").count()


def test_an_archived_function_is_listed_only_on_request_and_comes_back(alice: Any, function: str) -> None:
    assert archive(alice, function).json()["archived_at"] is not None
    assert archive(alice, function).status_code == 200  # again: nothing changes
    assert (names(alice), names(alice, "?archived=only"), names(alice, "?archived=include")) == (
        [], ["contains"], ["contains"],
    )  # fmt: skip
    assert alice.get(f"/functions/{function}").status_code == 200
    assert archive(alice, function, False).json()["archived_at"] is None
    assert (names(alice), names(alice, "?archived=only")) == (["contains"], [])
    assert (audited("function_archived"), audited("function_restored")) == (1, 1)


def test_an_archived_function_still_runs_and_takes_no_new_version(alice: Any, function: str) -> None:
    archive(alice, function)
    assert alice.run(reward=USE)["spec"]["reward"]["function"] == "contains@1"
    refused = upload(alice, REWARD + "\n")
    assert (refused.status_code, refused.json()["code"]) == (409, "archived")
    assert "restore it" in refused.json()["detail"]


def test_a_function_without_references_is_deleted_with_its_bytes(
    alice: Any, function: str, django_capture_on_commit_callbacks: Any
) -> None:
    sha256 = FunctionVersion.objects.get().sha256
    with django_capture_on_commit_callbacks(execute=True):
        assert alice.call("DELETE", f"/functions/{function}").status_code == 204
    assert not Function.objects.exists() and not FunctionVersion.objects.exists()
    assert not store.has_blob(sha256)
    assert alice.get(f"/functions/{function}").status_code == 404
    assert audited("function_deleted") == 1
    assert upload(alice).json()["ref"] == "contains@1"  # the name is free


def test_a_function_of_a_run_is_not_deleted_and_the_refusal_names_the_run(alice: Any, function: str) -> None:
    runs = [alice.run(reward=USE)["id"] for _ in range(6)]
    refused = alice.call("DELETE", f"/functions/{function}")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert runs[-1] in refused.json()["detail"] and "and 1 more" in refused.json()["detail"]
    assert "archive it instead" in refused.json()["detail"]
    assert FunctionVersion.objects.exists()


def test_a_draft_a_sweep_a_template_and_a_gate_keep_a_function(alice: Any, function: str) -> None:
    from control_plane.checkpoints.models import AliasGate
    from control_plane.core.infra import clock
    from control_plane.experiments.models import RunTemplate, RunTemplateVersion, Sweep
    from control_plane.runs.models import Run

    row = Function.objects.select_related("project__team").get()
    whose = {"created_by": row.created_by, "created_at": clock.now()}
    AliasGate.objects.create(
        project=row.project, alias="prod", spec={"reward": {"function": "contains@1"}}, assertions=[],
        updated_by=row.created_by, updated_at=clock.now(),
    )  # fmt: skip
    Sweep.objects.create(
        project=row.project, name="s", plan={}, max_parallel=1, status="RUNNING",
        spec={"evaluation": {"reward": {"function": "contains"}}}, **whose,
    )  # fmt: skip
    shared = RunTemplate.objects.create(team=row.project.team, name="shared", **whose)
    version = {"number": 1, "spec": {"reward": {"function": FunctionVersion.objects.get().pk}}}
    RunTemplateVersion.objects.create(template=shared, **version, **whose)
    run = alice.run(reward={"name": "exact_match"})["id"]
    Run.objects.filter(pk=run).update(status="DRAFT", spec={"reward": {"function": "contains@latest"}})
    detail = alice.call("DELETE", f"/functions/{function}").json()["detail"]
    for words in (f"draft {run}", "promotion gate prod", "sweep sw", "team template shared"):
        assert words in detail, detail


def test_a_function_of_a_like_name_or_of_another_project_does_not_count(
    alice: Any, person: Any, function: str
) -> None:
    upload(alice, REWARD + "# longer\n", name="contains_all")
    alice.run(reward={"function": "contains_all@1"})
    charlie = person("charlie", team="blue")
    assert charlie.call("DELETE", f"/functions/{function}").status_code == 404
    assert alice.call("DELETE", f"/functions/{function}").status_code == 204


def test_the_command_archives_restores_and_deletes(oolong: Any, tmp_path: Any) -> None:
    (tmp_path / "mine.py").write_text(REWARD)
    oolong("function", "upload", str(tmp_path / "mine.py"), "--name", "mine", "--kind", "reward")
    assert oolong("function", "archive", "mine").out == "mine is archived\n"
    assert oolong("function", "list").out == ""
    assert oolong("function", "list", "--archived").out.startswith("mine\treward\t")
    assert oolong("function", "restore", "mine").out == "mine is listed again\n"
    assert "mine is deleted" in oolong("function", "delete", "mine").err
    assert oolong("function", "get", "mine@1").code == 2
