"""Values at the edge of what a column, a number or a text can hold get a refusal with a reason, never a 500."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest

TOO_MUCH = [
    {"trainer": {"total_train_steps": 2**31}},
    {"trainer": {"total_train_steps": 10**30}},
    {"placement": {"priority": 2**31}},
    {"rollout": {"group_size": 2**63}},
    {"kind": "sft", "sft": {"steps": 2**31}},
    {"name": "x" * 5000},
    {"dataset": {"version": "sums@99999999999999999999"}},
    {"dataset": {"version": "x" * 10000}},
]
UNKEEPABLE = [
    {"name": "a\x00b"},
    {"notes": "a\x00b"},
    {"notes": "\ud800"},
    {"reward": {"name": "math", "options": {"a": "\x00"}}},
]
DIGITS = "9" * 5000  # Python itself refuses to read so many


@pytest.mark.parametrize("changes", TOO_MUCH)
def test_a_spec_with_a_value_that_nothing_can_hold_is_refused_with_its_place(
    alice: Any, changes: Any
) -> None:
    for path in ("/runs", "/runs/plan"):
        reply = alice.post(path, {"spec": alice.spec(**changes)})
        problem = reply.json()
        errors = problem["errors"]
        assert errors, (path, reply.status_code, problem)
        section = next(key for key in changes if key != "kind")
        assert any(section in error["pointer"] for error in errors), errors


@pytest.mark.parametrize("changes", UNKEEPABLE)
def test_a_text_that_no_database_keeps_is_refused(alice: Any, changes: Any) -> None:
    reply = alice.post("/runs", {"spec": alice.spec(**changes)})
    assert reply.status_code == 400
    assert "NUL" in reply.json()["detail"] or "half a character" in reply.json()["detail"]


@pytest.mark.parametrize("value", [2**31, 10**40, -(2**70), 1e308, "x" * 100_000, ["a"] * 1000, None, True])
def test_a_change_to_a_value_that_nothing_can_hold_is_refused(alice: Any, value: Any) -> None:
    run = alice.run()["id"]
    for changes in ({"staleness": {"max": value}}, {"rollout": {"max_concurrent_groups": value}}):
        assert alice.post(f"/runs/{run}/runtime", {"changes": changes}).status_code in (200, 202, 422)
    assert alice.call(
        "PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": value}
    ).status_code in (200, 422)
    assert alice.call("PATCH", f"/runs/{run}", {"notes": value}).status_code in (200, 422)


@pytest.mark.parametrize("value", ["9" * 23, "-1", "%ED%A0%80", "1e999", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0"])
def test_a_question_at_the_edge_is_answered_or_refused(alice: Any, value: str) -> None:
    run = alice.run()["id"]
    for path in (f"/runs/{run}/events", f"/runs/{run}/trajectories", "/audit", "/runs"):
        for name in ("cursor", "limit", "step", "actor"):
            assert alice.get(f"{path}?{name}={value}").status_code in (200, 422), (path, name)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"spec": {"name": "a", "trainer": {"learning_rate": 1e999}}}', "larger than any number"),
        (b'{"spec": {"name": "a", "notes": NaN}}', "NaN is not JSON"),
        (b'{"spec": ' + b'{"a":' * 200 + b"1" + b"}" * 201, "deeper than 64 levels"),
        (b'{"spec": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "not JSON"),
        (b'{"spec": ' + DIGITS.encode() + b"}", "not JSON"),
        (b'{"spec": "\xff"}', "not JSON"),
    ],
    ids=["infinite", "nan", "deep", "very deep", "digits", "no text"],
)
def test_a_body_that_is_no_plain_json_is_refused_with_its_reason(alice: Any, body: bytes, says: str) -> None:
    headers = {"authorization": f"Bearer {alice.token}"}
    reply = alice.client.post("/api/v1/runs", data=body, content_type="application/json", headers=headers)
    assert reply.status_code == 400
    assert says in reply.json()["detail"]


def test_numbers_of_thousands_of_digits_are_refused_wherever_an_address_has_one(alice: Any) -> None:
    run, version = alice.run()["id"], alice.get("/datasets").json()["data"][0]["latest"]["id"]
    deep = base64.urlsafe_b64encode(b"[" * 1200).decode()
    cursor = base64.urlsafe_b64encode(DIGITS.encode()).decode()
    short = base64.urlsafe_b64encode(b"9" * 30).decode()
    for path in (
        f"/runs?limit={DIGITS}", f"/dataset-versions/{version}/rows?cursor={cursor}",
        f"/dataset-versions/{version}/rows?cursor={short}", f"/runs?sort=reward&cursor={deep}",
        f"/runs?sort=reward&cursor={base64.urlsafe_b64encode(b'[1e999, 1]').decode()}",
        f"/runs/{run}?wait={DIGITS}", f"/runs/{run}/events?limit=%D9%A3",
    ):  # fmt: skip
        reply = alice.get(path)
        assert reply.status_code in (200, 422), (path[:60], reply.content[:300])
        assert len(reply.content) < 20_000, "a refusal does not repeat it all"


@pytest.mark.parametrize("header", ["bytes=" + DIGITS + "-", "bytes=0-" + DIGITS, "bytes=-" + DIGITS])
def test_a_range_of_thousands_of_digits_is_no_range(alice: Any, header: str) -> None:
    from django.http import HttpRequest

    from control_plane.core.api.range_response import file_response

    request = HttpRequest()
    request.method, request.META["HTTP_RANGE"] = "GET", header
    reply = file_response(request, io.BytesIO(b"whole"), size=5, etag="x")
    assert reply.status_code == 200


def test_no_bytes_from_the_end_are_no_part_of_a_file() -> None:
    from django.http import HttpRequest

    from control_plane.core.api.errors import Problem
    from control_plane.core.api.range_response import file_response

    request = HttpRequest()
    request.method, request.META["HTTP_RANGE"] = "GET", "bytes=-0"
    with pytest.raises(Problem, match="lies outside"):
        file_response(request, io.BytesIO(b"whole"), size=5, etag="x")


def test_numbers_that_no_column_and_no_calendar_holds_are_refused(alice: Any) -> None:
    upload = alice.upload(b'{"q": 1}\n')
    for path, body in (
        ("/dataset-validations", {"upload_id": upload, "stop_after": 10**12}),
        ("/checkpoint-retention/plan", {"ttl_days": 10**10}),
        ("/checkpoint-retention/plan", {"keep_last": 10**30}),
        ("/upload-sessions", {"filename": "f", "purpose": "dataset", "bytes": 10**30}),
    ):
        reply = alice.post(path, body)
        assert reply.status_code in (413, 422), (path, reply.content[:300])
