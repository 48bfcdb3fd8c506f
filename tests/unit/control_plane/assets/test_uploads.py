"""Uploads in parts: resumed by a client that remembers nothing, and never whole with a wrong byte."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from control_plane.accounts.identity import services as accounts
from control_plane.assets.models import Upload, UploadSession
from control_plane.assets.storage import multipart, store
from control_plane.core.infra.locks import LockClass, session_lock

DATA = bytes(range(256)) * 4
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "PART_BYTES", 300)


def begin(person: Any, **changes: Any) -> Any:
    body = {"filename": "rows.jsonl", "purpose": "dataset", "bytes": len(DATA), "sha256": SHA256, **changes}
    return person.post("/upload-sessions", body)


def send(
    person: Any, session: Any, number: int, *, data: bytes | None = None, sha256: str | None = None
) -> Any:
    part = data if data is not None else DATA[300 * number : 300 * (number + 1)]
    headers = {"X-Part-SHA256": sha256 or hashlib.sha256(part).hexdigest()}
    return person.call("PUT", f"/upload-sessions/{session['id']}/parts/{number}", part, **headers)


def test_parts_in_any_order_become_the_very_file(alice: Any) -> None:
    session = begin(alice).json()
    assert (session["part_bytes"], session["part_count"], session["received_parts"]) == (300, 4, [])
    for number in (3, 0, 2):
        assert send(alice, session, number).status_code == 200
    early = alice.post(f"/upload-sessions/{session['id']}/complete")
    assert (early.status_code, early.json()["code"]) == (409, "parts_missing")
    assert send(alice, session, 1).json()["received_parts"] == [0, 1, 2, 3]
    upload = alice.post(f"/upload-sessions/{session['id']}/complete").json()
    assert (upload["sha256"], upload["bytes"]) == (SHA256, len(DATA))
    assert Path(store.presign(SHA256)).read_bytes() == DATA
    assert alice.post(f"/upload-sessions/{session['id']}/complete").json() == upload


def test_the_same_upload_is_put_together_by_one_request_at_a_time(alice: Any) -> None:
    """A client that waited too long comes again while the first request still hashes."""
    session = begin(alice).json()
    for number in range(4):
        send(alice, session, number)
    with session_lock(LockClass.COMPLETION, session["id"]) as first:
        assert first
        again = alice.post(f"/upload-sessions/{session['id']}/complete")
        assert (again.status_code, again.json()["code"], again["Retry-After"]) == (
            503,
            "completion_in_progress",
            "10",
        )
        assert not store.has_blob(SHA256), "nothing was begun"
    assert alice.post(f"/upload-sessions/{session['id']}/complete").json()["sha256"] == SHA256


def test_bytes_that_are_not_the_announced_ones_do_not_stay(alice: Any) -> None:
    session = begin(alice, sha256="0" * 64).json()
    for number in range(4):
        send(alice, session, number)
    refused = alice.post(f"/upload-sessions/{session['id']}/complete")
    assert (refused.status_code, refused.json()["code"]) == (422, "checksum")
    assert not store.has_blob(SHA256)


def test_who_starts_the_same_file_again_goes_on_with_what_is_there(alice: Any, person: Any) -> None:
    session = begin(alice).json()
    send(alice, session, 2)
    again = begin(alice)
    assert (again.status_code, again.json()["id"]) == (200, session["id"])
    assert again.json()["received_parts"] == [2]
    assert begin(alice, bytes=5, sha256="0" * 64).json()["id"] != session["id"]
    assert begin(person("bob")).json()["id"] != session["id"], "another's unfinished upload is their own"


def test_without_a_sha256_the_fingerprint_finds_it_again(alice: Any) -> None:
    body = {"filename": "f", "purpose": "dataset", "bytes": 600, "fingerprint": "f 600 yesterday"}
    first = alice.post("/upload-sessions", body).json()
    assert alice.post("/upload-sessions", body).json()["id"] == first["id"]
    other = alice.post("/upload-sessions", {**body, "fingerprint": "f 600 today"}).json()
    assert other["id"] != first["id"]


def test_bytes_that_the_project_has_are_not_sent_twice_and_tell_no_other_project(
    alice: Any, person: Any
) -> None:
    alice.upload(DATA)
    assert begin(alice).json()["upload"]["sha256"] == SHA256
    assert begin(person("charlie", team="blue")).json()["upload"] is None


@pytest.mark.parametrize(
    ("number", "data", "sha256", "code"),
    [
        (0, None, "0" * 64, "checksum"),
        (0, b"short", None, "part_size"),
        (4, b"", None, "no_such_part"),
        (3, DATA[:300], None, "part_size"),
    ],
)
def test_wrong_part_is_rejected_and_not_stored(
    alice: Any, number: int, data: bytes | None, sha256: str | None, code: str
) -> None:
    session = begin(alice).json()
    reply = send(alice, session, number, data=data, sha256=sha256)
    assert (reply.status_code, reply.json()["code"]) == (422, code)
    assert alice.get(f"/upload-sessions/{session['id']}").json()["received_parts"] == []


def test_a_part_without_its_checksum_is_refused(alice: Any) -> None:
    session = begin(alice).json()
    reply = alice.call("PUT", f"/upload-sessions/{session['id']}/parts/0", DATA[:300])
    assert (reply.status_code, reply.json()["code"]) == (422, "checksum")


def test_a_whole_with_another_sha256_is_dropped_and_can_be_sent_again(alice: Any) -> None:
    session = begin(alice, sha256="0" * 64).json()
    for number in range(4):
        send(alice, session, number)
    reply = alice.post(f"/upload-sessions/{session['id']}/complete")
    assert (reply.status_code, reply.json()["code"]) == (422, "checksum")
    assert alice.get(f"/upload-sessions/{session['id']}").json()["received_parts"] == []
    assert not Upload.objects.filter(bytes=len(DATA)).exists()


@pytest.mark.parametrize(
    ("changes", "status", "pointer", "says"),
    [
        ({"purpose": "movie"}, 422, "/purpose", "must be one of dataset, model; it is 'movie'"),
        ({"bytes": 0}, 422, "/bytes", "a file has at least 1 byte; it is 0"),
        (
            {"bytes": 10**15},
            413,
            "/bytes",
            "bytes=1000000000000000: an upload of purpose dataset has at most",
        ),
        ({"sha256": "xyz"}, 422, "/sha256", "it is 'xyz'"),
    ],
)
def test_an_odd_start_is_refused(
    alice: Any, changes: dict[str, Any], status: int, pointer: str, says: str
) -> None:
    reply = begin(alice, **changes)
    [error] = reply.json()["errors"]
    assert (reply.status_code, error["pointer"]) == (status, pointer) and says in error["message"]
    assert not UploadSession.objects.exists()


def test_an_aborted_session_leaves_nothing(alice: Any) -> None:
    session = begin(alice).json()
    send(alice, session, 0)
    assert alice.call("DELETE", f"/upload-sessions/{session['id']}").status_code == 204
    assert not UploadSession.objects.exists()
    assert store.received_parts(session["id"]) == []
    assert send(alice, session, 0).status_code == 404


def test_a_finished_session_takes_no_more_and_cannot_be_aborted(alice: Any) -> None:
    session = begin(alice, bytes=5, sha256=hashlib.sha256(b"hello").hexdigest()).json()
    send(alice, session, 0, data=b"hello")
    alice.post(f"/upload-sessions/{session['id']}/complete")
    assert send(alice, session, 0, data=b"hello").json()["code"] == "upload_complete"
    assert alice.call("DELETE", f"/upload-sessions/{session['id']}").json()["code"] == "upload_complete"


@pytest.mark.parametrize(("purpose", "scope"), [("dataset", "datasets:write"), ("model", "models:write")])
def test_a_session_needs_the_scope_of_its_purpose(alice: Any, purpose: str, scope: str) -> None:
    session = begin(alice, purpose=purpose).json()
    for scopes, status in (
        ([scope], 200),
        ([{"dataset": "models:write", "model": "datasets:write"}[purpose]], 403),
    ):
        _, alice.token = accounts.create_token(
            user=alice.user, project=alice.project, name="t", scopes=scopes
        )
        assert begin(alice, purpose=purpose).status_code == status
        assert send(alice, session, 0).status_code == status


def test_the_command_goes_on_where_a_killed_one_ended(
    alice: Any, oolong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process knows nothing of the first but the file."""
    monkeypatch.setattr("oolong.client.archives.ONE_REQUEST_BYTES", 10)
    lines = b"".join(
        b'{"prompt": "%d", "answer": "%s"}\n' % (n, os.urandom(9).hex().encode()) for n in range(50)
    )
    Path("rows.jsonl").write_bytes(lines)
    session = begin(alice, bytes=len(lines), sha256=hashlib.sha256(lines).hexdigest()).json()
    send(alice, session, 1, data=lines[300:600])
    seen: list[int] = []
    plain = multipart.put_part

    def watched(upload_id: str, total: int, number: int, data: bytes, *, sha256: str | None) -> None:
        seen.append(number)
        plain(upload_id, total, number, data, sha256=sha256)

    monkeypatch.setattr(multipart, "put_part", watched)
    done = oolong("dataset", "upload", "rows.jsonl", "--name", "resumed")
    assert done.code == 0, done.err
    assert 1 not in seen and len(seen) == session["part_count"] - 1
