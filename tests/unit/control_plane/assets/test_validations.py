"""Validations: every row is checked, the report names each fault, and nothing half-imported stays."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pyarrow
import pyarrow.parquet
import pytest
from celery.exceptions import SoftTimeLimitExceeded

from control_plane.assets.background.dataset_ingest import __main__ as parsing_main
from control_plane.assets.background.dataset_ingest.decode import decode
from control_plane.assets.background.dataset_ingest.job import (
    CANONICAL_FILE,
    LIMITS,
    PROGRESS_FILE,
    Progress,
    read_progress,
)
from control_plane.assets.background.dataset_ingest.progress import ProgressFile
from control_plane.assets.background.fair_queue import next_job
from control_plane.assets.background.runner import job_folder
from control_plane.assets.datasets.validation_services import advance_validations
from control_plane.assets.models import Dataset, DatasetValidation, DatasetVersion
from control_plane.assets.storage import store
from oolong.cli.output import check_state
from oolong.client.models import DatasetValidation as Validation
from oolong.sandbox import Status
from tests.support.scripted_api import shaped
from tests.unit.control_plane.conftest import validate_here

MAPPING = {"prompt_column": "q", "answer_column": "a", "split_column": "s"}
GOOD = b"".join(
    b'{"q": "%d", "a": "%d", "s": "%s"}\n' % (n % 5, n, b"eval" if n == 9 else b"train") for n in range(10)
)


def ask(alice: Any, data: bytes = GOOD, *, filename: str = "rows.jsonl", **changes: Any) -> Any:
    upload = alice.post(f"/uploads?filename={filename}&purpose=dataset", data).json()
    return alice.post("/dataset-validations", {"upload_id": upload["id"], "mapping": MAPPING, **changes})


@pytest.fixture
def validated(alice: Any, clock: Any, quick_validations: None) -> Any:
    """A validation that has ended."""

    def run(data: bytes = GOOD, **changes: Any) -> Any:
        asked = ask(alice, data, **changes)
        assert asked.status_code == 202, asked.content
        for _ in range(2):  # one tick starts it, the next settles it
            advance_validations(now=clock.now)
        return alice.get(f"/dataset-validations/{asked.json()['id']}").json()

    return run


def test_good_rows_become_a_version_and_the_same_rows_the_same_one(alice: Any, validated: Any) -> None:
    found = validated()
    assert (found["state"], found["rows"], found["faults"]) == ("VALID", 10, 0)
    assert found["splits"] == {"train": 9, "eval": 1}
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    made = alice.post(f"/datasets/{dataset}/versions", {"validation_id": found["id"]})
    assert made.status_code == 201, made.content
    again = alice.post(f"/datasets/{dataset}/versions", {"validation_id": validated()["id"]})
    assert (again.status_code, again.json()) == (200, made.json())
    rows = alice.get(f"/dataset-versions/{made.json()['id']}/rows?limit=2").json()["data"]
    assert [row["answer"] for row in rows] == ["0", "1"]


def test_prompts_that_come_twice_are_duplicates_or_conflicts_and_counted_where_they_are_in_two_splits(
    validated: Any,
) -> None:
    found = validated()
    assert (found["duplicates"], found["conflicts"], found["leaks"]) == (0, 5, {"eval in train": 1})
    assert found["first_conflicts"][1] == {"row": "line 7", "earlier": "line 2"}
    again = validated(GOOD.splitlines(keepends=True)[0] * 3)
    assert (again["duplicates"], again["conflicts"], again["first_conflicts"]) == (2, 0, [])
    assert {column["name"]: (column["type"], column["missing"]) for column in found["columns"]} == {
        "q": ("text", 0), "a": ("text", 0), "s": ("text", 0),
    }  # fmt: skip
    assert found["rendered"][0]["messages"] == [{"role": "user", "content": "0"}]


def test_every_fault_is_in_the_report_with_row_line_column_and_sample(alice: Any, validated: Any) -> None:
    lines = GOOD.splitlines()
    lines[3] = b'{"q": "only"}'
    lines[300:] = [b"not json"] * 300
    found = validated(b"\n".join(lines))
    assert (found["state"], found["faults"]) == ("INVALID", 301)
    assert found["faults_by_code"] == {"missing_column": 1, "not_json": 300}
    assert found["errors"][0]["pointer"] == "/rows/3/a" and found["errors"][0]["message"].startswith(
        "line 4: "
    )
    answer = alice.get(f"/dataset-validations/{found['id']}/report")
    report = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    assert len(report) == 301
    first = report[0]
    assert (first["row"], first["line"], first["column"], first["sample"]) == (4, 4, "a", '{"q": "only"}')
    assert not DatasetVersion.objects.filter(dataset__name="d").exists()


def test_faulty_rows_make_no_version(alice: Any, validated: Any) -> None:
    found = validated(b"{}\n")
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    reply = alice.post(f"/datasets/{dataset}/versions", {"validation_id": found["id"]})
    assert (reply.status_code, reply.json()["code"]) == (422, "rows_invalid")
    assert reply.json()["errors"][0]["pointer"] == "/rows/0/q"


@pytest.mark.parametrize("changes", [{"stop_after": 3}, {"mapping": None}])
def test_a_look_at_columns_or_first_rows_makes_no_version(
    alice: Any, validated: Any, changes: dict[str, Any]
) -> None:
    found = validated(**changes)
    assert found["state"] == "VALID" and len(found["columns"]) == 3
    assert found["rows"] == changes.get("stop_after", 10)
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    assert alice.post(f"/datasets/{dataset}/versions", {"validation_id": found["id"]}).status_code == 422


def test_a_validation_that_has_not_ended_makes_no_version_and_has_no_report(alice: Any) -> None:
    asked = ask(alice).json()
    assert asked["state"] == "QUEUED"
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    reply = alice.post(f"/datasets/{dataset}/versions", {"validation_id": asked["id"]})
    assert (reply.status_code, reply.json()["code"]) == (409, "not_validated")
    report = alice.get(f"/dataset-validations/{asked['id']}/report")
    assert (
        report.status_code == 404
        and "is QUEUED; its report is there when it has ended" in report.json()["detail"]
    )


def test_csv_is_read_by_its_name_and_a_broken_file_is_refused_as_a_whole(validated: Any) -> None:
    assert validated(b"q,a,s\n1,2,train\n", filename="rows.csv")["state"] == "VALID"
    found = validated(b"q,a,s\n1,2\n", filename="rows.csv")
    assert (found["state"], found["errors"][0]["code"]) == ("INVALID", "wrong_cells")


def test_faults_of_a_csv_have_the_lines_of_an_editor(alice: Any, validated: Any) -> None:
    found = validated(b'q;a;s\n"1\n2";1;train\n;2;train\nshort\n', filename="rows.csv")
    assert (found["delimiter"], [error["pointer"] for error in found["errors"]]) == (
        ";",
        ["/rows/1/q", "/rows/2"],
    )
    assert [error["message"].partition(":")[0] for error in found["errors"]] == ["line 4", "line 5"]
    assert [(line["row"], line["line"]) for line in report_of(alice, found)] == [(2, 4), (3, 5)]


WHOLE_FILES = {
    "array.json": (b'[{"q": 1}]', "json_array"),
    "rows.jsonl": ('{"q": "1"}'.encode("utf-16"), "not_utf8"),
    "named.csv": (b"PAR1 and more", "wrong_format"),
    "packed.jsonl.gz": (b"not packed", "wrong_format"),
    "header.csv": (b"q,a,s\n", "empty"),
    "quote.csv": (b'q,a,s\n"1,2,train\n', "unreadable"),
    "giant.jsonl": (b"x" * (5 * 1024 * 1024), "line_too_large"),
    "giant.csv": (b"q,a,s\n" + b"x" * (5 * 1024 * 1024) + b",1,train\n", "cell_too_large"),
    "bomb.jsonl.gz": (gzip.compress(b"0" * 20_000_000), "line_too_large"),
}


@pytest.mark.parametrize("filename", WHOLE_FILES)
def test_the_reason_why_a_file_cannot_be_used_is_its_report(
    alice: Any, validated: Any, filename: str
) -> None:
    data, code = WHOLE_FILES[filename]
    found = validated(data, filename=filename)
    [line] = report_of(alice, found)
    assert (found["state"], line["code"], line["line"]) == ("INVALID", code, None)
    assert line["message"] == found["message"] == found["errors"][0]["message"] != ""


def report_of(alice: Any, found: Any) -> list[Any]:
    answer = alice.get(f"/dataset-validations/{found['id']}/report")
    assert answer.status_code == 200, answer.content
    return [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]


PARQUET = io.BytesIO()
pyarrow.parquet.write_table(
    pyarrow.Table.from_pylist([json.loads(line) for line in GOOD.splitlines()]), PARQUET
)
PACKED = {
    "rows.jsonl.gz": gzip.compress(GOOD),
    "rows.jsonl.zst": pyarrow.compress(GOOD, codec="zstd", asbytes=True),
    "rows.parquet": PARQUET.getvalue(),
}


@pytest.fixture
def sandboxed(monkeypatch: pytest.MonkeyPatch, quick_validations: None) -> None:
    """The decoder in this process, where a sandbox would run it; tests/sandbox has the real one."""

    def run(program: Any, limits: Any, *, stdin: Any, stdout: Any) -> Any:
        counts = json.dumps(decode(stdin, stdout, program.common))
        return SimpleNamespace(error="", only=SimpleNamespace(status=Status.OK, value=counts, stderr=b""))

    there = SimpleNamespace(require=lambda: SimpleNamespace(run=run))
    monkeypatch.setattr(parsing_main, "probe_sandbox", lambda **_: there)


@pytest.mark.parametrize("filename", PACKED)
def test_a_packed_file_gives_the_rows_of_the_plain_one_and_half_of_it_none(
    alice: Any, validated: Any, sandboxed: None, filename: str
) -> None:
    plain, packed = validated(), validated(PACKED[filename], filename=filename)
    assert (packed["state"], packed["rows"], packed["splits"]) == ("VALID", 10, plain["splits"])
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    first, second = (
        alice.post(f"/datasets/{dataset}/versions", {"validation_id": found["id"]})
        for found in (plain, packed)
    )
    assert (first.status_code, second.status_code) == (201, 200), "the same rows are the same version"
    before = {blob.sha256 for blob in store.listed()}
    half = PACKED[filename][: len(PACKED[filename]) // 2]
    broken = validated(half, filename=filename)
    assert (broken["state"], broken["errors"][0]["code"]) == ("INVALID", "unreadable"), broken
    assert report_of(alice, broken)[0]["message"] == broken["message"]
    assert broken["errors"][0]["message"]
    refused = alice.post(f"/datasets/{dataset}/versions", {"validation_id": broken["id"]})
    assert (refused.status_code, refused.json()["code"]) == (422, "rows_invalid")
    report = DatasetValidation.objects.get(pk=broken["id"]).report_sha256
    kept = {hashlib.sha256(half).hexdigest(), report}
    assert {blob.sha256 for blob in store.listed()} - before == kept, "the upload and the report"


@pytest.mark.parametrize(
    ("bound", "most", "code"),
    [
        ("rows", 9, "too_many_rows"), ("decoded_bytes", 50, "decoded_too_large"), ("line_bytes", 20, "line_too_large"),
        ("columns", 2, "too_many_columns"), ("cell_bytes", 3, "cell_too_large"),
    ],
)  # fmt: skip
def test_file_over_a_limit_creates_no_version_and_names_the_limit(
    alice: Any,
    validated: Any,
    sandboxed: None,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    most: int,
    code: str,
) -> None:
    monkeypatch.setitem(LIMITS, bound, most)
    plain = bound in ("rows", "decoded_bytes", "line_bytes")
    found = validated() if plain else validated(PACKED["rows.parquet"], filename="rows.parquet")
    [error] = found["errors"]
    assert (found["state"], error["code"]) == ("INVALID", code) and str(most) in error["message"], error
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    assert alice.post(f"/datasets/{dataset}/versions", {"validation_id": found["id"]}).status_code == 422
    assert not DatasetVersion.objects.filter(dataset__name="d").exists()


def test_parquet_is_never_read_outside_of_a_sandbox(validated: Any) -> None:
    found = validated(b"PAR1", filename="rows.parquet")
    assert (found["state"], found["errors"][0]["code"]) == ("INVALID", "no_sandbox")


@pytest.mark.parametrize(
    "changes",
    [{"format": "xml"}, {"stop_after": 0}, {"mapping": {**MAPPING, "template": "{q!r}"}}, {"maping": 1}],
)
def test_an_odd_question_is_refused(alice: Any, changes: dict[str, Any]) -> None:
    before = DatasetValidation.objects.count()
    assert ask(alice, **changes).status_code == 422
    assert DatasetValidation.objects.count() == before


def test_anothers_upload_cannot_be_validated(alice: Any, person: Any) -> None:
    upload = alice.upload(GOOD)
    assert (
        person("charlie", team="blue").post("/dataset-validations", {"upload_id": upload}).status_code == 404
    )


# --- the process ------------------------------------------------------------------------------------------


def settle(validation_id: str, clock: Any) -> DatasetValidation:
    pid = DatasetValidation.objects.get(pk=validation_id).pid
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=60)
    advance_validations(now=clock.now)
    return DatasetValidation.objects.get(pk=validation_id)


def test_crashed_process_is_not_a_result_and_its_last_output_is_reported(
    alice: Any, clock: Any, process: Any
) -> None:
    process("raise SystemExit('the disk is full')")
    asked = ask(alice).json()["id"]
    advance_validations(now=clock.now)
    found = settle(asked, clock)
    assert found.state == "FAILED" and "the disk is full" in found.message
    assert not job_folder(found).exists()


def test_at_most_two_run_at_a_time_without_secrets(
    alice: Any, clock: Any, process: Any, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    process(
        f"import os, sys, time; open({str(seen)!r} + '/' + str(os.getpid()), 'w').write(repr(dict(os.environ)))"
    )
    for n in range(3):
        ask(alice, GOOD + b" " * n)
    advance_validations(now=clock.now)
    assert DatasetValidation.objects.filter(state="RUNNING").count() == 2
    for validation in DatasetValidation.objects.filter(state="RUNNING"):
        settle(validation.pk, clock)
    told = "".join(path.read_text() for path in seen.iterdir())
    assert "PYTHONPATH" in told and "DATABASE_URL" not in told and "SECRET_KEY" not in told
    for validation in DatasetValidation.objects.filter(state="RUNNING"):
        settle(validation.pk, clock)


def test_what_nobody_foresaw_in_one_validation_holds_up_no_other(
    alice: Any, clock: Any, quick_validations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = ask(alice, GOOD + b"\n").json()["id"], ask(alice).json()["id"]
    plain = store.presign

    def presign(sha256: str) -> str:
        if sha256 == DatasetValidation.objects.get(pk=broken).upload.sha256:
            raise RuntimeError("out of the blue \x00")
        return plain(sha256)

    monkeypatch.setattr(store, "presign", presign)
    for _ in range(2):
        advance_validations(now=clock.now)
    assert alice.get(f"/dataset-validations/{good}").json()["state"] == "VALID"
    told = alice.get(f"/dataset-validations/{broken}").json()
    assert (told["state"], "RuntimeError: out of the blue" in told["message"]) == ("FAILED", True)


def test_a_validation_waits_while_the_storage_is_away(
    alice: Any, clock: Any, quick_validations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask(alice).json()["id"]

    def away(*_: Any) -> str:
        raise store.StorageUnavailable("it is away")

    for name in ("presign", "move_in"):
        with monkeypatch.context() as patch:
            patch.setattr(store, name, away)
            for _ in range(2):
                advance_validations(now=clock.now)
        assert alice.get(f"/dataset-validations/{asked}").json()["state"] in ("QUEUED", "RUNNING")
    for _ in range(2):
        advance_validations(now=clock.now)
    assert alice.get(f"/dataset-validations/{asked}").json()["state"] == "VALID"


def test_tick_killed_while_finalizing_loses_no_result(
    alice: Any, clock: Any, quick_validations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask(alice).json()["id"]
    advance_validations(now=clock.now)
    plain = store.move_in

    def killed(*args: Any) -> None:
        plain(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "move_in", killed)
        with pytest.raises(KeyboardInterrupt):
            advance_validations(now=clock.now)
    assert alice.get(f"/dataset-validations/{asked}").json()["state"] == "RUNNING"
    advance_validations(now=clock.now)
    found = alice.get(f"/dataset-validations/{asked}").json()
    assert (found["state"], found["rows"]) == ("VALID", 10)


def test_tick_over_its_time_limit_loses_no_result(
    alice: Any, clock: Any, quick_validations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's soft limit is an Exception like any other, and no fault of the file."""
    asked = ask(alice).json()["id"]
    advance_validations(now=clock.now)

    def over(*_: Any) -> None:
        raise SoftTimeLimitExceeded

    with monkeypatch.context() as patch:
        patch.setattr(store, "move_in", over)
        with pytest.raises(SoftTimeLimitExceeded):
            advance_validations(now=clock.now)
    assert alice.get(f"/dataset-validations/{asked}").json()["state"] == "RUNNING"
    advance_validations(now=clock.now)
    assert alice.get(f"/dataset-validations/{asked}").json()["state"] == "VALID"


def test_missing_rows_are_not_a_valid_result(alice: Any, clock: Any, quick_validations: None) -> None:
    asked = ask(alice).json()["id"]
    advance_validations(now=clock.now)
    (job_folder(DatasetValidation.objects.get(pk=asked)) / CANONICAL_FILE).unlink()
    advance_validations(now=clock.now)
    assert alice.get(f"/dataset-validations/{asked}").json()["state"] == "FAILED"


def test_of_rows_of_megabytes_only_their_beginnings_are_shown(validated: Any) -> None:
    wide = {"q": "x" * 200_000, "a": "1", "s": "train", "more": ["y" * 50_000] * 40}
    found = validated(b"".join(json.dumps({**wide, "n": n}).encode() + b"\n" for n in range(3)))
    assert (found["state"], len(found["sample"])) == ("VALID", 3)
    assert len(json.dumps([found["sample"], found["rendered"]])) < 30_000
    assert found["sample"][0]["q"].startswith("xxx") and found["sample"][0]["q"].endswith("…")


def test_a_running_validation_says_how_far_it_is(alice: Any, clock: Any, process: Any) -> None:
    process("import time; time.sleep(600)")
    asked = ask(alice).json()
    assert (asked["bytes"], asked["bytes_seen"], asked["rows_seen"]) == (len(GOOD), 0, 0)
    advance_validations(now=clock.now)
    folder = job_folder(DatasetValidation.objects.get(pk=asked["id"]))
    (folder / PROGRESS_FILE).write_bytes(msgspec.json.encode(Progress(bytes_seen=100, rows_seen=3)))
    advance_validations(now=clock.now)
    found = alice.get(f"/dataset-validations/{asked['id']}").json()
    os.kill(DatasetValidation.objects.get(pk=asked["id"]).pid, signal.SIGKILL)
    assert (found["state"], found["bytes_seen"], found["rows_seen"]) == ("RUNNING", 100, 3)


def test_the_process_tells_how_far_it_is_while_another_reads(tmp_path: Path) -> None:
    progress = ProgressFile(tmp_path)
    (tmp_path / "source").write_bytes(b"x" * 1000)
    with (tmp_path / "source").open("rb") as source:
        with progress.reading(source):
            subprocess.run(["head", "-c", "300"], stdin=source, stdout=subprocess.DEVNULL, check=True)
            progress.rows_seen = 2
            progress.write()
            during = read_progress(tmp_path)
        progress.write()
    assert during is not None and 300 <= during.bytes_seen <= 1000 and during.rows_seen == 2
    assert read_progress(tmp_path) == Progress(bytes_seen=1000, rows_seen=2)


def test_an_ended_validation_has_seen_everything(validated: Any) -> None:
    found = validated()
    assert (found["bytes_seen"], found["rows_seen"]) == (len(GOOD), 10)


# --- the command ------------------------------------------------------------------------------------------

WORDS = ("--prompt-column", "q", "--answer-column", "a", "--split-column", "s")


def test_the_command_uploads_validates_and_previews(oolong: Any) -> None:
    Path("rows.jsonl").write_bytes(GOOD)
    assert "[user] 0" in oolong("dataset", "preview", "rows.jsonl", *WORDS, "--limit", "1").out
    checked = oolong("dataset", "validate", "rows.jsonl", *WORDS)
    assert (
        checked.code == 0 and "valid, 10 rows checked, 0 faults, 0 duplicates, 5 conflicting" in checked.out
    )
    assert "line 7 differs from line 2" in checked.out
    assert "1 prompts are in two splits (eval in train)" in checked.out
    done = oolong("dataset", "upload", "rows.jsonl", "--name", "numbers", *WORDS)
    assert done.out.startswith("dsv_") and "numbers@1: 10 rows" in done.err


def test_a_refused_first_upload_leaves_no_dataset_and_names_the_line(oolong: Any) -> None:
    Path("rows.jsonl").write_bytes(GOOD * 30 + b"{}\n")
    done = oolong("dataset", "upload", "rows.jsonl", "--name", "numbers", *WORDS)
    assert done.code == 2 and "line 301" in done.err
    assert not Dataset.objects.filter(name="numbers").exists()
    checked = oolong("dataset", "validate", "rows.jsonl", *WORDS, "--report", "faults.jsonl")
    assert checked.code == 2 and "not valid, 301 rows checked" in checked.out
    assert json.loads(Path("faults.jsonl").read_text())["line"] == 301


def test_the_reason_why_a_whole_file_fails_is_printed_and_written_to_the_report(oolong: Any) -> None:
    Path("rows.json").write_text(json.dumps([{"q": "1", "a": "2"}]))
    checked = oolong("dataset", "validate", "rows.json", *WORDS, "--report", "faults.jsonl")
    assert checked.code == 2 and checked.out.startswith("rows.json: the file is a JSON array; ")
    assert "0 rows checked, 1 faults" in checked.out
    assert json.loads(Path("faults.jsonl").read_text())["code"] == "json_array"
    assert "rows.json: the file is a JSON array" in oolong("dataset", "preview", "rows.json", *WORDS).err


def test_the_command_lists_the_first_faults_and_how_many_more_there_are(oolong: Any) -> None:
    Path("rows.csv").write_text("q;a;s\n" + ";1;train\n" * 60)
    checked = oolong("dataset", "validate", "rows.csv", *WORDS)
    assert checked.out.startswith("line 2: column 'q' is empty\nline 3: ")
    assert "… and 10 faults; --report FILE writes all of them" in checked.out
    assert "60 rows checked, cells separated by semicolons, 60 faults" in checked.out


def test_the_bar_says_what_is_done_with_the_file() -> None:
    made = {"id": "dsval_1", "format": "jsonl", "bytes": 100}
    states = [{"state": "QUEUED"}, {"state": "RUNNING"}, {"state": "RUNNING", "rows_seen": 7}]
    shown = [Validation.model_validate(shaped(Validation, **made, **state)) for state in states]
    assert [check_state("a.csv", one) for one in shown] == [
        "a.csv waits for its check", "reading a.csv", "checking a.csv, 7 rows checked",
    ]  # fmt: skip


def test_what_no_database_can_hold_in_a_column_that_nobody_uses_holds_nothing_up(
    alice: Any, validated: Any
) -> None:
    odd = b'{"q": "1", "a": "2", "s": "train", "x\\u0000": {"deep": ["\\u0000", "\\ud800", 1e999]}}\n'
    found = validated(odd + GOOD)
    assert (found["state"], found["rows"]) == ("VALID", 11), found["message"]
    assert found["sample"][0]["x\ufffd"] == {"deep": ["\ufffd", "\ufffd", None]}
    assert found["columns"][3]["name"] == "x\ufffd"


def test_a_number_of_5000_digits_is_a_fault_of_its_row(validated: Any) -> None:
    found = validated(GOOD + b'{"q": "1", "s": "train", "a": ' + b"7" * 5000 + b"}\n")
    assert (found["state"], found["faults_by_code"]) == ("INVALID", {"not_json": 1})


def test_nobody_waits_behind_anothers_hundred(alice: Any, person: Any) -> None:
    """The oldest of the project that has the fewest under way is next, whoever came first."""
    bob = person("bob", project="another")
    asked = []
    for who, count in ((alice, 3), (bob, 2)):
        upload = who.upload(b"{}\n")
        ids = [who.post("/dataset-validations", {"upload_id": upload}).json()["id"] for _ in range(count)]
        asked.append(ids)
    queued = DatasetValidation.objects.filter(state="QUEUED")
    running = DatasetValidation.objects.filter(state="RUNNING")
    order = []
    while (turn := next_job(queued, running, project="project_id")) is not None:
        order.append(turn)
        DatasetValidation.objects.filter(pk=turn).update(state="RUNNING")
    first, second = asked
    assert order == [first[0], second[0], first[1], second[1], first[2]]


def test_a_project_has_only_so_many_checks_open(alice: Any, person: Any, settings: Any) -> None:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, project_checks=2)
    upload = alice.upload(b'{"q": 1}\n')
    asked = [alice.post("/dataset-validations", {"upload_id": upload}) for _ in range(3)]
    assert [reply.status_code for reply in asked] == [202, 202, 409]
    assert asked[2].json()["code"] == "too_many" and "2 checks" in asked[2].json()["detail"]
    bob = person("bob", project="another")
    assert bob.post("/dataset-validations", {"upload_id": bob.upload(b"{}\n")}).status_code == 202
    validate_here()
    assert alice.post("/dataset-validations", {"upload_id": upload}).status_code == 202
