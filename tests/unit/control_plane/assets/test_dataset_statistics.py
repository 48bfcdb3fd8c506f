"""Token lengths of a version under a stored model's tokenizer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from control_plane.assets.background import processes
from control_plane.assets.background.dataset_ingest.job import PROGRESS_FILE, Progress, read_progress
from control_plane.assets.background.dataset_ingest.progress import ProgressFile
from control_plane.assets.background.token_statistics import __main__ as measuring
from control_plane.assets.background.token_statistics.job import lengths_of
from control_plane.assets.background.token_statistics.lengths import EXACT_UP_TO, measure, rounded
from control_plane.assets.datasets.measurement_services import advance_measurements
from control_plane.assets.models import DatasetMeasurement
from control_plane.assets.storage import store
from oolong.cli.output import counting_state
from oolong.client.models import DatasetStatistics
from tests.support.model_files import archive, files
from tests.support.scripted_api import shaped
from tests.unit.control_plane.conftest import ready_model


def words() -> bytes:
    """A tokenizer with one token a word."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[attr-defined]
    return str(tokenizer.to_str()).encode()


ROWS = [
    {
        "question": "a " * n,
        "answer": 1,
        "how": "a a" if n % 2 else None,
        "split": "train" if n <= 100 else "eval",
    }
    for n in range(1, 111)
]


@pytest.fixture
def version(alice: Any, monkeypatch: pytest.MonkeyPatch, quick_validations: None) -> str:
    """A version of 110 rows and a model `worded`; the sandbox is left out, tests/sandbox has it."""
    assert alice.model("worded", archive(files(tokenizer__json=words()))).json()["state"] == "READY"
    made = alice.dataset("lengths", ROWS, completion_column="how")
    assert made.status_code == 201, made.content

    def here(source: Path, _: Path, progress: ProgressFile) -> Any:
        with source.open("rb") as file, progress.reading(file):
            return json.loads(json.dumps(measure(file)))

    monkeypatch.setattr(measuring, "run_apart", here)
    identity: str = made.json()["id"]
    return identity


def ask(alice: Any, version: str, model: str = "worded") -> Any:
    return alice.post(f"/dataset-versions/{version}/statistics", {"model": model})


def done(alice: Any, version: str, clock: Any, query: str = "") -> Any:
    for _ in range(2):
        advance_measurements(now=clock.now)
    return alice.get(f"/dataset-versions/{version}/statistics{query}").json()["data"][0]


def test_lengths_are_counted_once_by_split_with_percentiles_and_a_share(
    alice: Any, version: str, clock: Any
) -> None:
    asked = ask(alice, version)
    assert (asked.status_code, asked.json()["state"]) == (202, "QUEUED")
    found = done(alice, version, clock, "?over=50")
    assert (found["state"], found["message"]) == ("DONE", "")
    train = found["prompts"]["train"]
    assert {name: value for name, value in train.items() if name not in ("histogram", "share_over")} == {
        "rows": 100, "mean": 50.5, "smallest": 1, "p50": 50, "p95": 95, "p99": 99, "largest": 100,
    }  # fmt: skip
    assert train["share_over"] == 0.5 and found["prompts"]["eval"]["share_over"] == 1.0
    assert sum(one["rows"] for one in train["histogram"]) == 100 and len(train["histogram"]) <= 32
    assert found["completions"]["train"]["largest"] == 2 and found["without_completion"] == 55
    by_name = {column["name"]: column for column in found["columns"]}
    assert (by_name["completion"]["missing"], by_name["split"]["distinct"]) == (55, 2)
    assert by_name["answer"]["frequent"] == [{"value": "1", "rows": 110}]
    assert (by_name["answer"]["minimum"], by_name["answer"]["maximum"]) == (1.0, 1.0)
    assert (ask(alice, version).status_code, DatasetMeasurement.objects.count()) == (200, 1)


def test_a_measurement_says_how_many_bytes_of_the_rows_it_has_counted(
    alice: Any, version: str, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(alice, version)
    folders: list[Path] = []
    monkeypatch.setattr(processes, "start", lambda _, folder: folders.append(folder) or 1)
    monkeypatch.setattr(processes, "is_alive", lambda *_: True)
    found = done(alice, version, clock)
    whole = found["bytes"]
    assert (found["state"], found["bytes_seen"]) == ("RUNNING", 0) and whole > 1000
    read = []
    for bytes_seen in (700, 10 * whole):
        progress = msgspec.json.encode(Progress(bytes_seen=bytes_seen))
        (folders[0] / PROGRESS_FILE).write_bytes(progress)
        read.append(done(alice, version, clock)["bytes_seen"])
    assert read == [700, whole]
    measuring.work(folders[0])
    found = done(alice, version, clock)
    assert (found["state"], found["bytes_seen"]) == ("DONE", whole)


def test_the_tokenizer_before_the_rows_counts_for_no_progress(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"tokenizer" + b"rows")
    progress = ProgressFile(tmp_path, head=9)
    seen = []
    with (tmp_path / "input").open("rb", buffering=0) as source, progress.reading(source):
        for _ in range(3):
            source.read(5)
            progress.write()
            seen.append(read_progress(tmp_path))
    assert [one and one.bytes_seen for one in seen] == [0, 1, 4]


def test_the_command_shows_a_bar_of_what_is_counted() -> None:
    made = {"id": "m", "version_id": "v", "model": {"id": "b", "name": "b"}, "bytes": 900}
    states = [{"state": "QUEUED"}, {"state": "RUNNING", "bytes_seen": 300}]
    shown = [DatasetStatistics.model_validate(shaped(DatasetStatistics, **made, **state)) for state in states]
    assert [counting_state("sums@1", one) for one in shown] == [
        "sums@1 waits to be counted",
        "counting tokens of sums@1",
    ]


def test_odd_questions_are_refused_with_the_way(alice: Any, version: str, person: Any) -> None:
    ready_model(alice, "elsewhere", "/models/x")
    upload = alice.upload(archive(files()), "model")
    alice.post("/models", {"name": "not yet", "upload_id": upload})
    reply = ask(alice, version, "not yet")
    assert (reply.status_code, reply.json()["code"]) == (409, "not_validated")
    reply = ask(alice, version, "elsewhere")
    assert (reply.status_code, reply.json()["code"]) == (422, "no_tokenizer")
    assert ask(alice, version, "nobody").status_code == 404
    assert ask(person("charlie", team="blue"), version).status_code == 404
    assert alice.get(f"/dataset-versions/{version}/statistics?over=many").status_code == 422


def test_unloadable_tokenizer_is_reported_and_can_be_retried(alice: Any, version: str, clock: Any) -> None:
    alice.model("broken", archive(files(tokenizer__json=b'{"model": {"type": "NoSuch", "vocab": {}}}')))
    ask(alice, version, "broken")
    found = done(alice, version, clock)
    assert (found["state"], "cannot be loaded" in found["message"]) == ("FAILED", True)
    assert ask(alice, version, "broken").status_code == 202


def test_a_measurement_that_meets_the_unforeseen_says_so(
    alice: Any, version: str, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(alice, version)
    with monkeypatch.context() as patch:
        patch.setattr(store, "presign", lambda _: 1 / 0)
        advance_measurements(now=clock.now)
    assert "ZeroDivisionError" in done(alice, version, clock)["message"]


def test_a_measurement_waits_while_the_storage_does_not_answer(
    alice: Any, version: str, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(sha256: str) -> str:
        raise store.StorageUnavailable("no answer")

    ask(alice, version)
    with monkeypatch.context() as patch:
        patch.setattr(store, "presign", no_answer)
        for _ in range(2):
            advance_measurements(now=clock.now)
    assert DatasetMeasurement.objects.get().state == "QUEUED"
    assert done(alice, version, clock)["state"] == "DONE"


@given(st.dictionaries(st.integers(0, 5000), st.integers(1, 9), min_size=1, max_size=30))
def test_a_percentile_is_the_least_length_that_so_many_rows_do_not_pass(counts: dict[int, int]) -> None:
    every = sorted(length for length, rows in counts.items() for _ in range(rows))
    found = lengths_of(counts, sum(every))
    for share, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
        assert sum(length <= value for length in every) >= share * len(every)
        assert sum(length < value for length in every) < share * len(every)
    assert (found.smallest, found.largest) == (every[0], every[-1])


@given(st.integers(0, 10**7))
def test_a_long_length_is_rounded_up_by_less_than_two_percent(length: int) -> None:
    assert length <= rounded(length) <= length * 1.02
    assert length > EXACT_UP_TO or rounded(length) == length


def test_rows_are_counted_without_special_tokens_and_duplicates_apart_from_conflicts() -> None:
    row = {"split": "s", "messages": [{"content": "a a"}, {"content": "b"}], "completion": None}
    tokenizer = words()
    lines = b"".join(json.dumps({**row, "answer": answer}).encode() + b"\n" for answer in ("1", "1", "2"))
    found = measure(io.BytesIO(len(tokenizer).to_bytes(8, "big") + tokenizer + lines))
    assert found["counts"]["prompts"] == {"s": [(3, 3)]}
    assert (found["duplicates"], found["conflicts"]) == (1, 1)


def test_the_command_shows_them_as_a_table(oolong: Any, version: str) -> None:
    shown = oolong("dataset", "stats", "lengths@1", "--model", "worded", "--over", "50")
    assert shown.code == 0, shown.err
    assert "50.00%" in shown.out and "55 rows without a completion" in shown.err
    assert oolong("dataset", "stats", "lengths@1", "--model", "nobody").code == 2
