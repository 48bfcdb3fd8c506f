"""Which runs a list shows: filters, bounds, orders, views; and that a page costs the same however many there are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from control_plane.assets.models import Function, FunctionVersion
from control_plane.core.api.pagination import encode
from control_plane.core.infra import clock as clock_module
from control_plane.core.stream import event_stream
from control_plane.runs import telemetry_hooks
from control_plane.runs.models import Run
from control_plane.runs.search import SORTS
from tests.unit.control_plane.conftest import Clock, Person, make_alice, make_person, standing_clock


@pytest.fixture(scope="module", autouse=True)
def _own_store(store_of_module: None) -> None:
    """Of the module, as its runs are."""


@pytest.fixture(scope="module")
def built(_own_store: None, django_db_setup: None, django_db_blocker: Any) -> Iterator[Person]:
    """Alice and four runs, an hour apart; the third is Bob's, the fourth has no reward yet."""
    with django_db_blocker.unblock(), transaction.atomic():
        with pytest.MonkeyPatch.context() as patch:
            clock = standing_clock(patch)
            alice = make_alice()
            for number, reward in enumerate((0.2, 0.9, 0.5, None)):
                by = make_person("bob") if number == 2 else alice
                run = by.run(name=f"run {number}", notes="with a note" if number == 1 else "")
                row = Run.objects.get(pk=run["id"])
                with transaction.atomic():
                    values = {"reward/mean": reward, "eval/greedy": reward} if reward is not None else {}
                    telemetry_hooks.record_steps([(row, number + 1, values)], event_stream.EventBatch())
                alice.call("PATCH", f"/runs/{run['id']}", {"tags": ["all", f"tag{number % 2}"]})
                clock.forward(3600)
        yield alice
        transaction.set_rollback(True)


@pytest.fixture
def alice(built: Person, clock: Clock, db: None) -> Person:
    """`db` comes last: its transaction is inside the one that holds the runs, and undoes what a test does to them."""
    clock.forward(4 * 3600)
    return built


def found(person: Any, query: str) -> list[str]:
    reply = person.get(f"/runs?{query}")
    assert reply.status_code == 200, reply.content
    return [run["name"] for run in reply.json()["data"]]


def test_a_filter_by_conditions_finds_runs_with_any_of_them(alice: Any) -> None:
    for name, conditions in (
        ("run 0", ["DEGRADED", "GAP"]),
        ("run 2", ["NEEDS_ATTENTION"]),
        ("run 3", ["GAP"]),
    ):
        Run.objects.filter(name=name).update(conditions=conditions)
    assert found(alice, "condition=needs_attention,degraded") == ["run 2", "run 0"]
    assert found(alice, "condition=GAP&sort=name") == ["run 0", "run 3"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["run 3", "run 2", "run 1", "run 0"]),
        ("text=NOTE", ["run 1"]),
        ("author=bob", ["run 2"]),
        ("tag=all&tag=tag1", ["run 3", "run 1"]),
        ("metric=reward/mean%3E=0.5", ["run 2", "run 1"]),
        ("metric=reward/mean%3E0.2&metric=eval/greedy%3C0.9", ["run 2"]),
        ("dataset=sums", ["run 3", "run 2", "run 1", "run 0"]),
        ("dataset=sums@1&model=tiny&name=run%201", ["run 1"]),
        ("dataset=sums@2", []),
        ("model=other", []),
        ("created_after=2026-01-01T14:00:00Z", ["run 3", "run 2"]),
        ("created_after=2026-01-01T13:00:00Z&created_before=2026-01-01T15:00:00%2B00:00", ["run 2", "run 1"]),
        ("sort=-reward", ["run 1", "run 2", "run 0", "run 3"]),
        ("sort=reward", ["run 3", "run 0", "run 2", "run 1"]),
        ("sort=created", ["run 0", "run 1", "run 2", "run 3"]),
        ("sort=-train_step&author=alice", ["run 3", "run 1", "run 0"]),
        ("status=queued,running&kind=rl,sft&sort=name", ["run 0", "run 1", "run 2", "run 3"]),
        ("parent=run_none", []),
    ],
)
def test_a_filter_finds_what_it_says(alice: Any, query: str, names: list[str]) -> None:
    assert found(alice, query) == names


def test_the_function_filter_finds_runs_by_name_and_by_version(alice: Any) -> None:
    function = Function.objects.create(
        project=alice.project, created_by=alice.user, name="close", kind="reward"
    )
    versions = [
        FunctionVersion.objects.create(
            function=function, number=number, sha256=str(number) * 64, bytes=1, created_by=alice.user
        )
        for number in (1, 2)
    ]
    Run.objects.get(name="run 0").functions.set(versions)
    Run.objects.get(name="run 2").functions.set(versions[1:])
    assert found(alice, "function=close") == ["run 2", "run 0"]
    assert found(alice, "function=close@1") == ["run 0"]
    assert found(alice, "function=clos") == []
    reply = alice.get("/runs?function=close@newest")
    assert reply.status_code == 422 and "name@3" in reply.json()["detail"]


def pages(person: Any, query: str, between: Callable[[], Any] = lambda: None) -> list[str]:
    """The names over all pages of one run each; `between` happens after each page."""
    names, cursor, more = [], "", True
    while more:
        page = person.get(f"/runs?{query}&limit=1{cursor}").json()
        names += [run["name"] for run in page["data"]]
        cursor, more = f"&cursor={page['next_cursor']}", page["has_more"]
        between()
    return names


@pytest.mark.parametrize("sort", [sign + name for name in ("created", *SORTS) for sign in ("", "-")])
def test_pages_of_any_order_meet_without_a_gap_or_a_repeat(alice: Any, sort: str) -> None:
    Run.objects.filter(name="run 1").update(staleness_mean=0.5, started_at=clock_module.now())
    Run.objects.filter(name="run 2").update(staleness_mean=0.5, started_at=clock_module.now())
    whole = found(alice, f"sort={sort}")
    assert len(whole) == 4 and pages(alice, f"sort={sort}") == whole


@pytest.fixture
def worked(alice: Any, clock: Clock) -> Any:
    """Run 0 waits, run 1 ended after 600 s, run 2 was paused 500 s ago after 900 s, run 3 works since 700 s."""
    now = clock.now
    ago = {seconds: now - timedelta(seconds=seconds) for seconds in (500, 700, 1400, 4000, 4700)}
    for name, fields in (
        (
            "run 1",
            {"status": "SUCCEEDED", "started_at": ago[4700], "ended_at": ago[4000], "paused_seconds": 100},
        ),
        ("run 2", {"status": "PAUSED", "started_at": ago[1400], "status_at": ago[500]}),
        ("run 3", {"status": "RUNNING", "started_at": ago[700]}),
    ):
        Run.objects.filter(name=name).update(**fields)
    return alice


def test_duration_leaves_pauses_out_and_stands_still_in_one(worked: Any, clock: Clock) -> None:
    assert found(worked, "sort=-duration") == ["run 2", "run 3", "run 1", "run 0"]
    assert found(worked, "sort=duration") == ["run 0", "run 1", "run 3", "run 2"]
    clock.forward(201)
    assert found(worked, "sort=-duration") == ["run 3", "run 2", "run 1", "run 0"]


@pytest.mark.parametrize("sort", ["duration", "-duration"])
def test_time_that_passes_between_pages_neither_skips_nor_repeats_a_run(
    worked: Any, clock: Clock, sort: str
) -> None:
    """Without the time of the first page run 3 overtakes run 2 between the pages."""
    before = found(worked, f"sort={sort}")

    def end_run_3() -> None:
        Run.objects.filter(name="run 3").update(status="SUCCEEDED", ended_at=clock.forward(150))

    assert pages(worked, f"sort={sort}", between=end_run_3) == before


def test_a_cursor_with_a_time_without_zone_is_refused(alice: Any) -> None:
    cursor = encode(json.dumps(["1.0", "run_x", "2026-01-01T12:00:00"]))
    refused = alice.get(f"/runs?sort=-duration&cursor={cursor}")
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/cursor"


@pytest.mark.parametrize(
    ("query", "pointer", "says"),
    [
        ("statsu=RUNNING", "/statsu", "known: limit, cursor, status, condition, kind"),
        ("status=EXPLODED", "/status", "known: DRAFT"),
        ("kind=rlhf", "/kind", "known: "),
        ("condition=SAD", "/condition", "known: DEGRADED, NEEDS_ATTENTION"),
        ("metric=reward", "/metric", "reward/mean>=0.5"),
        ("metric=reward/mean%3E=--3", "/metric", "a number"),
        ("created_after=yesterday", "/created_after", "with a time zone"),
        ("created_after=2026-01-01T12:00:00", "/created_after", "with a time zone"),
        ("created_before=2026-13-01T12:00:00Z", "/created_before", "with a time zone"),
        ("sort=hue", "/sort", "one of created"),
        ("dataset=sums@three", "/dataset", "name@3"),
        ("name=%0A", "/name", "printable text"),
        ("text=" + "x" * 401, "/text", "400 characters"),
        ("&".join("tag=x" for _ in range(21)), "/tag", "at most 20"),
        ("sort=-reward&cursor=bm9uc2Vuc2U", "/cursor", "not a cursor"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_with_its_name(
    alice: Any, query: str, pointer: str, says: str
) -> None:
    refused = alice.get(f"/runs?{query}")
    assert refused.status_code == 422, refused.content
    error = refused.json()["errors"][0]
    assert error["pointer"] == pointer and says in error["message"]


def test_a_page_costs_the_same_queries_however_many_runs_it_shows(alice: Any) -> None:
    def queries(query: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert alice.get(f"/runs?{query}").status_code == 200
        return len(seen)

    queries("limit=1")  # the token's use is noted once
    assert queries("limit=1") == queries("limit=4")
    assert queries("limit=4&sort=-reward&metric=reward/mean%3E0&tag=all") == queries("limit=4")


def test_a_view_is_saved_used_shared_and_changed_by_its_owner_alone(alice: Any, person: Any) -> None:
    query = {"tag": ["all", "tag1"], "sort": "-reward"}
    made = alice.post("/saved-views", {"name": "good ones", "query": query})
    assert made.status_code == 201, made.content
    view = made.json()
    assert view["query"] == {"tag": ["all", "tag1"], "sort": ["-reward"]}
    assert found(alice, f"view={view['id']}") == ["run 1", "run 3"]
    assert found(alice, f"view={view['id']}&sort=name&author=alice") == ["run 1", "run 3"]
    bob = person("bob")
    assert bob.get(f"/saved-views/{view['id']}").status_code == 404, "it is alice's own"
    assert bob.get(f"/runs?view={view['id']}").status_code == 404
    alice.call("PATCH", f"/saved-views/{view['id']}", {"shared": True})
    assert [row["name"] for row in bob.get("/saved-views").json()["data"]] == ["good ones"]
    refused = bob.call("DELETE", f"/saved-views/{view['id']}")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_owner")
    charlie = person("charlie", team="blue")
    assert charlie.get(f"/saved-views/{view['id']}").status_code == 404
    assert alice.post("/saved-views", {"name": "good ones", "query": {}}).json()["code"] == "name_taken"
    assert alice.call("DELETE", f"/saved-views/{view['id']}").status_code == 204


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"statsu": "x"}, "/query/statsu"),
        ({"status": "EXPLODED"}, "/query/status"),
        ({"tag": 3}, "/query/tag"),
        ({"metric": ["reward/mean>=0.5", "x"]}, "/query/metric"),
    ],
)
def test_a_view_of_what_no_list_takes_is_refused(alice: Any, query: dict[str, Any], pointer: str) -> None:
    refused = alice.post("/saved-views", {"name": "odd", "query": query})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)
    assert alice.get("/saved-views").json()["data"] == []


def test_a_view_keeps_the_columns_of_the_list(alice: Any) -> None:
    columns = ["status", "model"]
    made = alice.post("/saved-views", {"name": "models", "query": {}, "columns": columns}).json()
    assert alice.get(f"/saved-views/{made['id']}").json()["columns"] == columns
    changed = alice.call("PATCH", f"/saved-views/{made['id']}", {"columns": None}).json()
    assert changed["columns"] is None
    assert alice.post("/saved-views", {"name": "without", "query": {}}).json()["columns"] is None
    refused = alice.post("/saved-views", {"name": "odd", "query": {}, "columns": ["Not a column"]})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/columns/0")


def test_an_older_evaluation_stays_and_an_older_step_does_not(alice: Any) -> None:
    row = Run.objects.get(pk=alice.run()["id"])
    with transaction.atomic():
        for step, values in (
            (10, {"reward/mean": 0.5, "time/step_seconds": 3.0}),
            (8, {"reward/mean": 0.1, "eval/greedy": 0.7}),
        ):
            telemetry_hooks.record_steps([(row, step, values)], event_stream.EventBatch())
    row.refresh_from_db()
    assert row.metrics == {"reward/mean": 0.5, "eval/greedy": 0.7}


def test_the_command_lists_by_filters_and_views(oolong: Any, alice: Any) -> None:
    listed = oolong("run", "list", "--filter", "metric=reward/mean>=0.5", "--filter", "sort=-reward")
    assert [line.split("\t")[1] for line in listed.out.splitlines()] == ["run 1", "run 2"]
    made = oolong("view", "create", "best", "--filter", "metric=reward/mean>=0.5")
    assert made.code == 0, made.err
    assert "metric=reward/mean>=0.5" in oolong("view", "list").out
    shown = oolong("run", "list", "--view", made.out.strip())
    assert len(shown.out.splitlines()) == 2
    assert oolong("run", "list", "--filter", "statsu=x").code == 2
    assert oolong("run", "list", "--filter", "nothing").code == 2
    assert oolong("view", "delete", made.out.strip()).code == 0
