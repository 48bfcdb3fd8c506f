"""Sampled trajectories: their tokens go to Parquet behind ingest, and read the same from wherever they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.conf import settings as django_settings
from django.test import Client

from control_plane.assets.storage import store
from control_plane.core.infra import clock
from control_plane.runs.models import Run, RunEvent
from control_plane.telemetry.compaction import retention, trajectory_files
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import (
    OutboxFile,
    RunSpan,
    TrajectoryFile,
    TrajectorySample,
    TrajectoryTokens,
)
from control_plane.telemetry.query import selectors
from oolong.contracts import telemetry as contract
from tests.unit.control_plane.telemetry.world import World, build_world, encode

AT = 1_700_000_000.0
LATER = datetime.fromtimestamp(AT, UTC) + timedelta(minutes=5)


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, settings: Any) -> None:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, data_dir=tmp_path)


@pytest.fixture
def world(db: None) -> World:
    return build_world()


def line(n: int, **fields: Any) -> contract.TrajectoryLine:
    values: dict[str, Any] = {
        "at": AT, "step": n, "group_id": f"0-{n}-0", "prompt": f"prompt {n}", "answer": "a", "completion": f"says {n}",
        "reward": n / 10, "policy_versions": [n, 2, -1, 1, n + n % 3, 1], "finish_reason": "stop", "row": n,
        "member": 1, "token_ids": [n, 7, 8, 9], "logprobs": [-0.5, -1.0, 0.0, -0.25], "score": n / 5,
        "token_chars": [2, 0, 1, 3], "trainer_logprobs": [-0.75, -1.0, None, -0.5], "advantages": [1.5, 1.5, None, 1.5],
        "sample_reasons": ["group"] if n % 2 else ["longest", "highest_reward"],
        "timeline": {"generate_seconds": 1.5},
    }  # fmt: skip
    if "token_ids" in fields:  # other tokens have other lengths
        values["token_chars"] = values["trainer_logprobs"] = values["advantages"] = []
    return contract.TrajectoryLine(**{**values, **fields})


def ship(world: World, *lines: contract.AnyLine) -> None:
    outbox.ingest_outbox(world.trainer.pk, "main-0.jsonl", offset=0, body=encode(*lines))


@pytest.fixture
def ask(world: World, client: Client) -> Callable[..., Any]:
    token = world.token()
    return lambda path="", **query: client.get(
        f"/api/v1/runs/{world.run.pk}/trajectories{path}", query, headers={"Authorization": f"Bearer {token}"}
    )


def test_tokens_read_the_same_before_and_after_they_are_in_a_file(
    world: World, ask: Callable[..., Any]
) -> None:
    ship(world, *(line(n) for n in range(40)))
    ids = list(TrajectorySample.objects.order_by("pk").values_list("pk", flat=True))
    before = [ask(f"/{identity}").json() for identity in ids]
    assert before[5]["token_ids"] == [5, 7, 8, 9] and before[5]["versions"] == [5, 5, -1, 7]
    assert before[5]["token_chars"] == [2, 0, 1, 3]
    assert before[5]["trainer_logprobs"] == [-0.75, -1.0, None, -0.5]
    assert before[5]["advantages"] == [1.5, 1.5, None, 1.5]
    assert before[5]["logprobs"] == [-0.5, -1.0, 0.0, -0.25] and before[5]["timeline"] == {
        "generate_seconds": 1.5
    }

    assert trajectory_files.write_pending_files(now=LATER) == 1
    assert not TrajectoryTokens.objects.exists()
    file = TrajectoryFile.objects.get()
    assert (file.samples, file.bytes) == (40, store.size_of(file.sha256))
    assert [ask(f"/{identity}").json() for identity in ids] == before
    with store.open_blob(file.sha256) as blob:
        assert pq.read_table(blob).column("completion")[3].as_py() == "says 3"
    assert trajectory_files.write_pending_files(now=LATER) == 0


def test_a_few_wait_for_more_but_not_for_ever(world: World) -> None:
    ship(world, line(1))
    soon = datetime.fromtimestamp(AT, UTC) + timedelta(seconds=10)
    assert trajectory_files.write_pending_files(now=soon) == 0
    assert trajectory_files.write_pending_files(now=LATER) == 1


def test_killed_between_file_and_rows_nothing_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(world, line(1), line(2))

    def killed(sha256: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "lock_blob", killed)
        with pytest.raises(KeyboardInterrupt):
            trajectory_files.write_pending_files(now=LATER)
    assert TrajectoryTokens.objects.count() == 2 and not TrajectoryFile.objects.exists()
    assert trajectory_files.write_pending_files(now=LATER) == 1


def test_a_run_whose_file_cannot_be_written_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = build_world("two")
    for each in (world, other):
        ship(each, line(1))
    plain, broken = trajectory_files._write_file, min(world.run.pk, other.run.pk)

    def write(run_id: str, *, now: datetime) -> None:
        if run_id == broken:  # the first in the tick's order
            raise store.StorageUnavailable("it is away")
        plain(run_id, now=now)

    monkeypatch.setattr(trajectory_files, "_write_file", write)
    assert trajectory_files.write_pending_files(now=LATER) == 1
    assert TrajectoryFile.objects.get().run_id != broken
    assert TrajectoryTokens.objects.get().sample.run_id == broken


def test_a_trajectory_without_tokens_is_shown(world: World, ask: Callable[..., Any]) -> None:
    ship(world, line(1, token_ids=[], logprobs=[], row=-1, timeline={}, score=None, sample_reasons=[]))
    TrajectorySample.objects.update(tokens=None, member=None)
    [listed] = ask().json()["data"]
    assert (listed["row"], listed["sample_reasons"], listed["timeline"]) == (None, [], {})
    whole = ask(f"/{listed['id']}").json()
    assert whole["token_ids"] is None and whole["completion"] == "says 1"


def test_filters_narrow_the_list(world: World, ask: Callable[..., Any]) -> None:
    ship(world, *(line(n) for n in range(9)), line(9, finish_reason="length", reward_result="time_limit"))

    def steps(**query: Any) -> list[int]:
        return [found["step"] for found in ask(**query).json()["data"]]

    assert steps(step_from=3, step_to=5) == [5, 4, 3]
    assert steps(reward_min=0.75) == [9, 8] and steps(reward_max=0.1) == [1, 0]
    assert steps(span_min=2) == [8, 5, 2] and steps(row=4) == [4] and steps(group="0-6-0") == [6]
    assert steps(because="longest", step_to=3) == [2, 0] and steps(q="SAYS 7") == [7]
    assert steps(q="prompt 3") == [3] and steps(attempt=2) == []
    assert steps(version=9) == [9, 8] and steps(version=0) == [0]
    assert steps(finish_reason="length") == [9] == steps(reward_result="time_limit")
    assert ask(finish_reason="stopped").status_code == 422


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"reward_min": "much"}, "/reward_min"), ({"reward_max": "nan"}, "/reward_max"),
        ({"span_min": "-1"}, "/span_min"), ({"because": "luck"}, "/because"), ({"q": "x" * 501}, "/q"),
    ],
)  # fmt: skip
def test_a_wrong_filter_names_its_field(ask: Callable[..., Any], query: dict[str, str], field: str) -> None:
    answer = ask(**query)
    assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == field


def test_a_trajectory_of_another_run_does_not_exist(world: World, ask: Callable[..., Any]) -> None:
    other = build_world("two")
    ship(other, line(1))
    assert ask(f"/{TrajectorySample.objects.get().pk}").status_code == 404


@pytest.mark.parametrize("fields", [{"logprobs": [0.0]}, {"token_ids": [2**31], "logprobs": [0.0]}])
def test_tokens_that_do_not_fit_are_a_bad_line(world: World, fields: dict[str, Any]) -> None:
    ship(world, line(1, **fields), line(2))
    assert TrajectorySample.objects.get().step == 2 and OutboxFile.objects.get().bad_lines == 1


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([0, 10**12, 0, 4 - 10**12], "0 to 2^31 - 1"), ([0, 5, 1, -1], "0 to 2^31 - 1"), ([0, 2**31], "0 to 2^31 - 1"),
        ([0, 4, 1], "pairs"), ([0, 3], "counts 3 tokens; token_ids has 4"), ([0, 5], "counts 5 tokens"),
        ([], "counts 0 tokens"), ([-2, 4], "-1 to 2^53"), ([2**63, 4], "-1 to 2^53"),
    ],
)  # fmt: skip
def test_versions_that_do_not_tell_of_the_tokens_are_a_bad_line(
    world: World, pairs: list[int], says: str
) -> None:
    ship(world, line(1, policy_versions=pairs), line(2))
    assert TrajectorySample.objects.get().step == 2 and OutboxFile.objects.get().bad_lines == 1
    assert says in RunEvent.objects.get(kind="bad_outbox_line").message
    assert trajectory_files.write_pending_files(now=LATER) == 1


def test_too_many_tokens_to_list_are_still_counted_within_bounds(world: World) -> None:
    untold: dict[str, Any] = {"token_ids": [], "logprobs": []}
    most = line(1, policy_versions=[0, 2**31 - 1], **untold)
    ship(world, most, line(2, policy_versions=[0, 2**31 - 1, 1, 1], **untold))
    assert TrajectorySample.objects.get().tokens == 2**31 - 1 and OutboxFile.objects.get().bad_lines == 1


@pytest.mark.parametrize(
    ("pairs", "versions"),
    [
        ([0, 10**12, 0, 5 - 10**12], [0, 0, 0]), ([7, 1, 8, -4, 9, 1], [7, 9, -1]), ([7, 2, 8, 2, 9, 1], [7, 7, 8]),
        ([7], [-1, -1, -1]),
    ],
)  # fmt: skip
def test_versions_stored_before_they_were_checked_read_as_many_as_there_are_tokens(
    pairs: list[int], versions: list[int]
) -> None:
    assert trajectory_files.expand_versions(pairs, 3) == versions


# --- retention --------------------------------------------------------------------------------------------


def test_logs_and_trajectories_of_old_runs_go_when_the_installation_says_so(
    world: World, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    ship(world, line(1), contract.Spans(at=AT, spans=[contract.Span(kind="wait", start=AT, end=AT + 1)]))
    outbox.ingest_log(world.trainer.pk, 0, offset=0, body=b"text\n")
    trajectory_files.write_pending_files(now=LATER)
    sha256 = TrajectoryFile.objects.get().sha256
    Run.objects.update(status="SUCCEEDED", ended_at=clock.now() - timedelta(days=31))
    assert retention.remove_old_telemetry(now=clock.now()) == 0
    settings.ENVIRONMENT = dataclasses.replace(django_settings.ENVIRONMENT, telemetry_days=32)
    assert retention.remove_old_telemetry(now=clock.now()) == 0
    settings.ENVIRONMENT = dataclasses.replace(django_settings.ENVIRONMENT, telemetry_days=30)
    with django_capture_on_commit_callbacks(execute=True):
        assert retention.remove_old_telemetry(now=clock.now()) == 1
    assert not TrajectorySample.objects.exists() and not store.has_blob(sha256)
    assert not RunSpan.objects.exists()
    [log] = selectors.logs(world.run)
    assert log.removed_at is not None
    found = selectors.log(world.run, world.trainer.pk, incarnation=None, offset=0, limit=100)
    assert found["text"] == "" and found["removed_at"] is not None
    assert retention.remove_old_telemetry(now=clock.now()) == 0
