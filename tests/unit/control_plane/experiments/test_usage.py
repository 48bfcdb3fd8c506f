"""Who used the pool: seconds of slots by team, project and run, by phase, and tokens by what became of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from control_plane.accounts.models import Role
from control_plane.checkpoints.models import Checkpoint
from control_plane.fleet.models import Lease, Slot
from control_plane.runs.models import Attempt, Job
from control_plane.runs.slot_usage import slot_usage
from control_plane.telemetry.ingest import outbox
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.telemetry import Points, StateSnapshot
from tests.unit.control_plane.conftest import Clock, Done, Person, SimulatedNode
from tests.unit.control_plane.telemetry.world import encode

STEP = {
    "time/wait_batch_seconds": 10.0,
    "time/prepare_seconds": 1.0,
    "time/proximal_seconds": 2.0,
    "time/train_seconds": 17.0,
    "time/publish_seconds": 5.0,
    "time/checkpoint_seconds": 5.0,
}
SHARES = {"idle/rollout_frac": 0.25, "weight_sync/engine_paused_frac": 0.05}
TOKENS = {
    "generated": 900, "trained": 600, "dropped": {"stale": 120, "filtered": 30}, "lost_to_recovery": 50,
    "in_hand": 90,
}  # fmt: skip


@pytest.fixture
def used(
    start: Callable[..., Any], node: Callable[..., SimulatedNode], clock: Clock, person: Callable[..., Person]
) -> str:
    """Alice's run held two slots for 100 s: a trainer of two steps and an engine that told of 80 s."""
    person("bob", team="blue")
    where = node()
    run: str = start(where)["id"]
    Lease.objects.update(granted_at=clock.now)
    Slot.objects.filter(name="cpu-1").update(device="cuda")
    ship(where.job("trainer"), *(Points(axis="step", x=x, values=STEP) for x in (1, 2)))
    ship(where.job("rollout-0"), *(Points(axis="time", x=x, values=SHARES) for x in (10, 50, 90)))
    ship(where.job("controller"), StateSnapshot(name="pipeline", value={"tokens": TOKENS}))
    clock.forward(100)
    return run


def ship(job: str, *lines: Any) -> None:
    outbox.ingest_outbox(job, "main-0.jsonl", offset=0, body=encode(*lines))


def test_seconds_of_slots_are_counted_by_phase_and_add_up(alice: Person, used: str) -> None:
    answer = alice.get("/pool/usage?by=run").json()
    (row,) = answer["data"]
    assert row["run"] == {"id": used, "name": "a run"} and row["team"]["name"] == "red"
    assert (row["slot_seconds"], row["gpu_seconds"]) == (200.0, 100.0)
    assert row["phases"] == {
        "generate": 56.0, "train": 40.0, "wait": 40.0, "sync": 14.0, "evaluate": 0.0, "other": 50.0,
    }  # fmt: skip
    assert row["tokens"] == {
        "generated": 900, "trained": 600, "dropped": {"filtered": 30, "stale": 120}, "lost": 50, "in_flight": 90,
        "unknown": 10, "wasted": 200,
    }  # fmt: skip
    generated = {"trained": 600, "dropped": 150, "in_flight": 90, "unknown": 10}  # without the lost ones
    expected = {outcome: 56.0 * tokens / 850 for outcome, tokens in generated.items()}
    expected["trained"] += 40.0
    expected["unknown"] += 50.0
    expected |= {"lost": 0.0, "evaluated": 0.0, "sync": 14.0, "idle": 40.0}
    assert row["outcomes"] == pytest.approx(expected, abs=1e-5)
    assert row["dropped"] == pytest.approx({"filtered": 56.0 * 30 / 850, "stale": 56.0 * 120 / 850}, abs=1e-5)
    assert microseconds(row["phases"].values()) == microseconds(row["outcomes"].values()) == 200_000_000
    assert answer["total"] == {name: row[name] for name in answer["total"]} and answer["left_out"] == 0


def microseconds(seconds: Iterable[float]) -> int:
    return sum(round(part * 1_000_000) for part in seconds)


def outcomes(person: Person) -> dict[str, float]:
    found: dict[str, float] = person.get("/pool/usage").json()["total"]["outcomes"]
    return found


def test_work_since_the_checkpoint_of_the_next_attempt_is_lost(
    alice: Person, used: str, clock: Clock
) -> None:
    first = Attempt.objects.get()
    began = clock.now - timedelta(seconds=100)
    Attempt.objects.update(status="ENDED", created_at=began, ending_at=clock.now, ended_at=clock.now)
    Lease.objects.update(released_at=clock.now)
    assert outcomes(alice)["lost"] == 0.0  # nothing was done again
    checkpoint = Checkpoint.objects.create(
        project=first.run.project, run_id=used, run_name="a run", attempt_id=first.pk, attempt_number=1,
        node_id=first.node_id, step=1, manifest_sha256="0" * 64, bytes=1, created_at=began + timedelta(seconds=60),
    )  # fmt: skip
    second = Attempt.objects.create(
        run=first.run, number=2, epoch=2, node=first.node, ports={}, created_at=clock.now, resume_checkpoint=checkpoint
    )  # fmt: skip
    found = outcomes(alice)
    assert found["lost"] == 80.0  # two slots for 40 s
    assert found["idle"] == pytest.approx(40.0 * 0.6) and found["sync"] == pytest.approx(14.0 * 0.6)
    assert microseconds(found.values()) == 200_000_000
    Attempt.objects.filter(pk=second.pk).update(resume_checkpoint=None)
    assert outcomes(alice)["lost"] == 200.0  # it began again from the start


def test_an_attempt_that_reported_before_outcomes_were_stored_is_partly_unknown(
    alice: Person, used: str
) -> None:
    Attempt.objects.update(tokens_dropped=None, tokens_lost=None, tokens_in_flight=None)
    tokens = alice.get("/pool/usage").json()["total"]["tokens"]
    assert (tokens["unknown"], tokens["wasted"], tokens["dropped"]) == (300, 200, {})
    Attempt.objects.update(tokens_generated=0)
    tokens = alice.get("/pool/usage").json()["total"]["tokens"]
    assert set(tokens.values()) == {None}
    assert outcomes(alice)["unknown"] == pytest.approx(50.0 + 56.0)


@pytest.mark.parametrize("by", ["team", "project", "phase", "outcome"])
@pytest.mark.parametrize(("bucket", "width"), [("hour", 3600), ("day", 86400)])
def test_series_add_up_to_the_usage(
    alice: Person, used: str, clock: Clock, by: str, bucket: str, width: int
) -> None:
    clock.forward(30 * 3600)
    start = clock.now - timedelta(hours=30, seconds=50)  # within the leases, and not at the start of a bucket
    since = start.isoformat().replace("+00:00", "Z")
    total = alice.get(f"/pool/usage?since={since}").json()["total"]
    answer = alice.get(f"/pool/usage/series?by={by}&bucket={bucket}&since={since}").json()
    starts = [datetime.fromisoformat(moment).timestamp() for moment in answer["starts"]]
    assert all(moment % width == 0 for moment in starts) and starts[0] <= start.timestamp()
    for field in ("slot_seconds", "gpu_seconds"):
        rows = [row[field] for row in answer["data"]]
        assert all(len(row) == len(starts) for row in rows)
        assert microseconds(part for row in rows for part in row) == microseconds([total[field]])
    if by in ("phase", "outcome"):
        named = {row["name"]["id"]: sum(row["slot_seconds"]) for row in answer["data"]}
        assert named == pytest.approx(total[f"{by}s"], abs=1e-3)
    middle = [sum(row["slot_seconds"][n] for row in answer["data"]) for n in range(1, len(starts) - 1)]
    assert middle == pytest.approx([2.0 * width] * len(middle))


def test_a_series_of_too_many_buckets_is_refused(alice: Person) -> None:
    answer = alice.get("/pool/usage/series?bucket=hour&since=2020-01-01T00:00:00Z")
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/bucket" and "shorter window or bucket=day" in error["message"]


def test_series_of_others_have_no_name(used: str, person: Callable[..., Person]) -> None:
    (row,) = person("bob", team="blue").get("/pool/usage/series?by=project").json()["data"]
    assert row["name"] is row["team"] is None and sum(row["slot_seconds"]) == 200.0


def test_what_an_evaluator_did_is_no_generating(alice: Person, used: str) -> None:
    engine = Job.objects.get(kind=JobKind.ROLLOUT)
    Job.objects.filter(pk=engine.pk).update(evaluates="step-2-v2", working_seconds=0.0, waiting_seconds=0.0)
    busy = (Points(axis="time", x=x, values={"evaluator/busy_seconds": 15.0}) for x in (91, 96))
    outbox.ingest_outbox(engine.pk, "main-1.jsonl", offset=0, body=encode(*busy))
    (row,) = alice.get("/pool/usage?by=run").json()["data"]
    assert (row["phases"]["generate"], row["phases"]["evaluate"]) == (0.0, 30.0)
    assert sum(row["phases"].values()) == pytest.approx(200.0, abs=0.01)


def test_only_what_lies_in_the_window_and_on_the_device_counts(
    alice: Person, used: str, clock: Clock
) -> None:
    half = "since=2026-01-01T00:00:00Z&until=" + (clock.now.replace(tzinfo=None)).isoformat() + "Z"
    assert alice.get(f"/pool/usage?{half}").json()["total"]["slot_seconds"] == 200.0
    begun = Lease.objects.first()
    assert begun is not None
    clock.forward(1000)
    Lease.objects.update(released_at=clock.now)  # they held them for 1100 s
    clock.forward(1000)
    some = alice.get(f"/pool/usage?{half}&device=cuda").json()["data"][0]
    assert (some["slot_seconds"], some["gpu_seconds"]) == (100.0, 100.0)
    assert sum(some["phases"].values()) == pytest.approx(100.0, abs=0.01)
    since = begun.granted_at.isoformat().replace("+00:00", "Z")
    assert alice.get(f"/pool/usage?since={since}").json()["total"]["slot_seconds"] == 2200.0
    assert alice.get("/pool/usage?until=2025-12-31T00:00:00Z").json()["data"] == []


def test_what_is_not_the_callers_has_no_name_but_is_counted(
    alice: Person, used: str, person: Callable[..., Person]
) -> None:
    strangers = person("bob", team="blue")
    for by in ("run", "project", "team"):
        answer = strangers.get(f"/pool/usage?by={by}").json()
        (row,) = answer["data"]
        assert row["team"] is row["project"] is row["run"] is None
        assert row["slot_seconds"] == 200.0
        assert used not in str(answer) and "'red'" not in str(answer)
    mates = person("carol", project="second", role=Role.VIEWER)
    assert mates.get("/pool/usage?by=project").json()["data"][0]["team"]["name"] == "red"
    assert mates.get("/pool/usage?by=project").json()["data"][0]["project"] is None
    strangers.user.is_staff = True
    strangers.user.save()
    assert strangers.get("/pool/usage?by=team").json()["data"][0]["team"]["name"] == "red"


def test_csv_has_every_row_and_no_formula(alice: Person, used: str) -> None:
    alice.call("PATCH", f"/runs/{used}", {"name": "=1+1"})
    answer = alice.get("/pool/usage?format=csv")
    assert answer["Content-Type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(answer.content.decode()))
    assert (row["run_id"], row["run"], row["train_seconds"]) == (used, "'=1+1", "40.0")
    assert (row["slot_seconds"], row["wasted_tokens"]) == ("200.0", "200")


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ("by=user", "/by", "run, project, team"),
        ("device=tpu", "/device", "cuda, cpu"),
        ("format=xml", "/format", "json, csv"),
        ("since=yesterday", "/since", "yesterday"),
        ("since=2026-01-01T00:00:00Z&until=2025-01-01T00:00:00Z", "/since", "is not before"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    alice: Person, query: str, field: str, said: str
) -> None:
    answer = alice.get(f"/pool/usage?{query}")
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == field and said in error["message"]


def test_the_command_shows_it_and_writes_csv(oolong: Callable[..., Done], used: str) -> None:
    lines = oolong("pool", "usage").out.splitlines()
    assert lines[0].split("\t") == [
        f"{used} a run",
        "200",
        "100",
        "0.00",
        "56",
        "40",
        "40",
        "14",
        "0",
        "50",
        "200",
    ]
    assert lines[-1].startswith("total\t200\t")
    by_outcome = oolong("pool", "usage", "--split", "outcome").out.splitlines()
    assert by_outcome[0].split("\t")[1:] == [
        "200",
        "100",
        "0.00",
        "80",
        "10",
        "6",
        "0",
        "0",
        "14",
        "40",
        "51",
        "200",
    ]
    assert '"generate": 56.0' in oolong("pool", "usage", "--by", "team", "--json").out
    assert oolong("pool", "usage", "--csv", "usage.csv").code == 0
    assert oolong("pool", "usage", "--csv", "-").out.startswith("team_id,team,")
    refused = oolong("pool", "usage", "--since", "soon")
    assert refused.code == 2 and "soon" in refused.err


def test_lines_that_come_again_count_once(alice: Person, used: str) -> None:
    job = Job.objects.get(kind=JobKind.TRAINER)
    again = encode(*(Points(axis="step", x=x, values=STEP) for x in (1, 2)))
    outbox.ingest_outbox(job.pk, "main-0.jsonl", offset=0, body=again)
    job.refresh_from_db()
    assert (job.working_seconds, job.waiting_seconds, job.syncing_seconds) == (40.0, 20.0, 10.0)


def test_shares_stand_for_the_time_since_the_ones_before_within_bounds() -> None:
    def shares(x: int, **more: Any) -> Points:
        return Points(axis="time", x=x, values={**SHARES, **more})

    first = slot_usage(JobKind.ROLLOUT, [shares(10)], measured_to=None)
    assert (first.working, first.measured_to) == (0.0, 10)  # since when is not known
    late = slot_usage(JobKind.ROLLOUT, [shares(1000)], measured_to=10)
    assert late.working + late.waiting + late.syncing == pytest.approx(60.0)  # a gap is nobody's
    back = slot_usage(JobKind.ROLLOUT, [shares(5)], measured_to=10)
    assert (back.working, back.measured_to) == (0.0, 10)
    odd = slot_usage(JobKind.ROLLOUT, [shares(20, **{"idle/rollout_frac": None})], measured_to=10)
    assert odd.waiting == 0.0 and odd.working == pytest.approx(9.5)
    bad = slot_usage(
        JobKind.ROLLOUT, [Points(axis="time", x=9, values={"evaluator/busy_seconds": None})], measured_to=1
    )
    assert not bad.working
    nothing = slot_usage(JobKind.CONTROLLER, [shares(20)], measured_to=None)
    assert not nothing


def test_a_lease_costs_the_price_of_its_grant_whatever_is_set_later(
    alice: Person, start: Callable[..., Any], node: Callable[..., SimulatedNode], clock: Clock
) -> None:
    def charge(per_hour: str | None) -> None:
        body = {"device": "cpu", "per_hour": per_hour}
        assert alice.call("PUT", "/pools/default/prices", body).status_code == 200

    charge("3.60")
    where = node(slots=4)
    start(where, name="priced")
    charge(None)
    start(where, name="free")
    charge("99")
    Lease.objects.update(granted_at=clock.now)
    clock.forward(100)
    answer = alice.get("/pool/usage").json()
    assert {row["run"]["name"]: row["cost"] for row in answer["data"]} == {"priced": 0.2, "free": 0.0}
    assert (answer["total"]["cost"], answer["total"]["unpriced_slot_seconds"]) == (0.2, 200.0)
    for by in ("team", "project", "phase", "outcome"):
        series = alice.get(f"/pool/usage/series?by={by}").json()
        assert series["currency"] == "USD"
        assert sum(sum(part["cost"]) for part in series["data"]) == pytest.approx(0.2)
