"""Uploads, rows and their faults: every fault says where, nothing of a faulty file is kept."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_plane.assets.datasets import cells, rows
from control_plane.assets.models import DatasetVersion
from control_plane.assets.storage import store
from oolong.contracts.attempt import CanonicalRow

MAPPING = rows.Mapping(prompt_column="q", answer_column="a", split_column="s")


@pytest.fixture
def alice(person: Any, clock: Any) -> Any:
    """Here she has nothing yet."""
    return person("alice")


def jsonl(*lines: Any) -> bytes:
    return b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )


def submit(alice: Any, data: bytes, **mapping: Any) -> Any:
    made = alice.post("/datasets", {"name": f"set {hashlib.sha256(data).hexdigest()[:8]}"})
    identity = made.json().get("id") or made.json()["id"]
    return alice.version(
        identity, alice.upload(data), {"prompt_column": "q", "answer_column": "a", **mapping}
    )


GOOD = {"q": "1+1", "a": "2"}


@pytest.mark.parametrize(
    ("line", "pointer", "code", "says"),
    [
        (b"{not json", "/rows/1", "not_json", "in double quotes at character 2; found '{not json'"),
        ([1, 2], "/rows/1", "not_an_object", "[1, 2]"),
        ({"q": "1+1"}, "/rows/1/a", "missing_column", "'q'"),
        ({"q": ["x"], "a": "2"}, "/rows/1/q", "wrong_type", '["x"]'),
        ({"q": True, "a": "2"}, "/rows/1/q", "wrong_type", "true"),
        ({"q": "  ", "a": "2"}, "/rows/1/q", "empty", "empty"),
        ({"q": "x\x00y", "a": "2"}, "/rows/1/q", "nul_character", "NUL"),
        (b'{"q": "\xff", "a": "2"}', "/rows/1", "not_utf8", "byte 7"),
        (b'{"q": "\\ud800", "a": "2"}', "/rows/1/q", "lone_surrogate", "half a character"),
        (b'{"q": NaN, "a": "2"}', "/rows/1", "not_json", "NaN"),
        (b'{"q": "1", "a": 1e999}', "/rows/1/a", "not_finite", "too large"),
        (b"", "/rows/1", "not_json", "the line is empty; delete it"),
        (b'{"q": "1", "a": "2", "q": "3"}', "/rows/1/q", "duplicate_key", "the key 'q' is there 2 times"),
        (
            b'{"q": "1", "a": "2", "more": {"x": 1, "x": 1}}',
            "/rows/1/x",
            "duplicate_key",
            "the key 'x' is there 2 times",
        ),
        (
            {"q": "x" * (cells.MAX_CELL_BYTES + 1), "a": "2"},
            "/rows/1/q",
            "cell_too_large",
            str(cells.MAX_CELL_BYTES),
        ),
        (b"[" * 100_000, "/rows/1", "not_json", "recursion"),
    ],
)
def test_a_faulty_row_is_named_and_nothing_is_stored(
    alice: Any, line: Any, pointer: str, code: str, says: str, tmp_path: Path
) -> None:
    before = DatasetVersion.objects.count()
    reply = submit(alice, jsonl(GOOD, line, GOOD))
    assert (reply.status_code, reply.json()["code"]) == (422, "rows_invalid")
    (error,) = reply.json()["errors"]
    assert (error["pointer"], error["code"]) == (pointer, code)
    assert error["message"].startswith("line 2: ")
    assert says in error["message"]
    assert DatasetVersion.objects.count() == before
    assert not list((tmp_path / "tmp").iterdir())


def test_at_most_fifty_faults_are_listed(alice: Any) -> None:
    reply = submit(alice, jsonl(*[{"q": "x"}] * 80))
    assert len(reply.json()["errors"]) == rows.ERRORS_SHOWN


def test_the_same_rows_are_the_same_version(alice: Any) -> None:
    data = jsonl(GOOD, {"q": "2+2", "a": 4})
    first, again = submit(alice, data), None
    dataset = first.json()["dataset"]["id"]
    mapping = {"prompt_column": "q", "answer_column": "a"}
    again = alice.version(dataset, alice.upload(data), mapping)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    changed = alice.version(dataset, alice.upload(data), {**mapping, "system": "Add."})
    assert (changed.status_code, changed.json()["number"]) == (201, 2)


def test_rows_are_canonical_rendered_and_counted_by_split(alice: Any) -> None:
    data = jsonl(
        {"q": "1+1", "a": 2, "how": "one more", "s": "train", "lang": "en"},
        {"q": "2+2", "a": 4.5, "how": None, "s": None, "lang": "de"},
    )
    version = submit(
        alice, data, completion_column="how", split_column="s", default_split="rest",
        template="[{lang}] {{x}} {prompt}", system="Add.",
    ).json()  # fmt: skip
    assert version["splits"] == {"train": 1, "rest": 1}
    assert version["with_completion"] == {"train": 1}
    listed = alice.get(f"/dataset-versions/{version['id']}/rows").json()["data"]
    assert listed[0] == {
        "row": 0, "split": "train", "answer": "2", "completion": "one more", "source": "",
        "messages": [{"role": "system", "content": "Add."}, {"role": "user", "content": "[en] {x} 1+1"}],
    }  # fmt: skip
    assert (listed[1]["answer"], listed[1]["completion"], listed[1]["split"]) == ("4.5", None, "rest")
    stored = Path(store.presign(version["sha256"])).read_bytes()
    assert hashlib.sha256(stored).hexdigest() == version["sha256"]
    decoded = [msgspec.json.decode(line, type=CanonicalRow) for line in stored.splitlines()]
    assert [row.row for row in decoded] == [0, 1]
    assert list(json.loads(stored.splitlines()[0])) == [
        "row",
        "split",
        "messages",
        "answer",
        "completion",
        "source",
    ]


@pytest.mark.parametrize(
    "template",
    ["{prompt.__class__}", "{prompt[0]}", "{0}", "{}", "{prompt!r}", "{prompt:>10}", "{prompt", "no column"],
)
def test_only_plain_columns_may_be_named_in_a_template(alice: Any, template: str) -> None:
    reply = submit(alice, jsonl(GOOD), template=template)
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/mapping/template")


def test_a_template_that_names_no_such_column_points_at_the_row(alice: Any) -> None:
    reply = submit(alice, jsonl(GOOD), template="{prompt} {hint}")
    assert reply.json()["errors"][0]["pointer"] == "/rows/0/hint"


def test_an_unknown_key_of_a_mapping_is_refused(alice: Any) -> None:
    reply = submit(alice, jsonl(GOOD), answer_colum="a")
    assert reply.json()["errors"][0]["pointer"] == "/mapping/answer_colum"


def test_pages_of_rows_cross_the_stride_of_the_offsets(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    version = submit(alice, jsonl(*({"q": f"{n}", "a": n} for n in range(1203)))).json()
    seen, cursor = [], ""
    while cursor is not None:
        page = alice.get(f"/dataset-versions/{version['id']}/rows?limit=200&cursor={cursor}").json()
        seen += [row["row"] for row in page["data"]]
        cursor = page["next_cursor"]
    assert seen == list(range(1203))


def test_a_version_of_an_upload_that_nobody_validated_is_refused_with_the_way(alice: Any) -> None:
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    body = {"upload_id": alice.upload(jsonl(GOOD)), "mapping": {"prompt_column": "q", "answer_column": "a"}}
    reply = alice.post(f"/datasets/{dataset}/versions", body)
    assert reply.status_code == 422
    assert "/upload_id" in {error["pointer"] for error in reply.json()["errors"]}


def test_upload_is_stored_by_sha256_and_a_wrong_checksum_is_rejected(alice: Any, tmp_path: Path) -> None:
    data = b"some bytes"
    digest = hashlib.sha256(data).hexdigest()
    kept = alice.post(
        "/uploads?filename=../x.jsonl&purpose=dataset", data, **{"X-Content-SHA256": digest}
    ).json()
    assert (kept["sha256"], kept["bytes"], kept["filename"]) == (digest, 10, "x.jsonl")
    refused = alice.post("/uploads?filename=x&purpose=dataset", b"other", **{"X-Content-SHA256": digest})
    assert (refused.status_code, refused.json()["code"]) == (422, "checksum")
    assert [path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()].count(digest) == 1
    assert not store.has_blob(hashlib.sha256(b"other").hexdigest())
    empty = alice.post("/uploads?filename=rows.jsonl&purpose=dataset", b"")
    assert (empty.status_code, empty.json()["code"]) == (422, "empty")
    assert "'rows.jsonl' has no bytes" in empty.json()["detail"]
    assert not store.has_blob(hashlib.sha256(b"").hexdigest()), "nothing of it stays"
    assert alice.post("/uploads?purpose=virus", b"x").status_code == 422


def test_an_upload_over_the_limit_is_refused(
    alice: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(
        __import__("control_plane.assets.services", fromlist=["x"]).MAX_UPLOAD_BYTES, "dataset", 5
    )
    assert alice.post("/uploads?purpose=dataset", b"123456").status_code == 413
    assert not list((tmp_path / "tmp").iterdir())


def test_a_name_is_taken_once(alice: Any) -> None:
    alice.dataset()
    refused = alice.post("/datasets", {"name": "sums"})
    assert (refused.status_code, refused.json()["code"]) == (409, "name_taken")
    assert alice.get("/datasets?name=sums").json()["data"][0]["id"] == refused.json()["id"]


line_strategy = st.one_of(
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b" ")),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("qas"), inner, max_size=3)
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"q": st.text(max_size=5), "a": st.text(max_size=5)}).map(
        lambda row: json.dumps(row).encode()
    ),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(line_strategy, max_size=6))
def test_any_file_is_stored_whole_or_rejected_with_a_pointer(lines: list[bytes]) -> None:
    target = io.BytesIO()
    writer = store.BlobWriter(target, None)
    decoded = [rows.DecodedRow(place, line) for place, line in enumerate(lines, 1)]
    written = rows.write_canonical(decoded, MAPPING, writer)
    if written.errors:
        assert all(error.pointer.startswith("/rows") for error in written.errors)
    else:
        kept = [msgspec.json.decode(line, type=CanonicalRow) for line in target.getvalue().splitlines()]
        assert [row.row for row in kept] == list(range(written.rows))
        assert sum(written.splits.values()) == written.rows > 0
