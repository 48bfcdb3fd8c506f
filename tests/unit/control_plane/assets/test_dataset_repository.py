"""A Hugging Face dataset directory: which files are rows, of which split, and what is refused."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from control_plane.assets.background.dataset_ingest.repository import (
    RepositoryRefused,
    _matches,
    plan,
    root_of,
    unpack,
)
from control_plane.assets.datasets.validation_services import advance_validations
from tests.support.archives import sparse

MAPPING = {"prompt_column": "q", "answer_column": "a"}
SHARDS = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]
NAMES = [
    "easy/a.jsonl",
    "easy/b.jsonl",
    "easy/deep/c.jsonl",
    "hard.jsonl",
    "more/eval.jsonl",
    "t/x/last.jsonl",
]
README = """---
configs:
- config_name: easy
  default: true
  data_files:
  - split: train
    path: "easy/*.jsonl"
  - split: test
    path: ["t/**/last.jsonl"]
- config_name: hard
  data_files: hard.jsonl
- config_name: folder
  data_dir: more
---
# text
"""


def rows(*values: int) -> bytes:
    return b"".join(json.dumps({"q": f"q{n}", "a": n}).encode() + b"\n" for n in values)


def splits(names: list[str], readme: str = "", config: str = "") -> dict[str, str]:
    return {file.name: file.split for file in plan(names, readme, config)}


@pytest.mark.parametrize(
    "wanted",
    [
        {**dict.fromkeys(SHARDS, "train"), "data/challenge-00000-of-00001.parquet": "challenge"},
        {"dev.jsonl.gz": "validation", "my_test_file_1.csv": "test", "train/a.jsonl": "train"},
        {"rows.jsonl": "train"},
    ],
)
def test_splits_are_read_from_the_names_of_files_and_folders(wanted: dict[str, str]) -> None:
    assert splits([*wanted, ".cache/x.jsonl", "notes.txt"]) == wanted


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ("", {"easy/a.jsonl": "train", "easy/b.jsonl": "train", "t/x/last.jsonl": "test"}),
        ("hard", {"hard.jsonl": "train"}),
        ("folder", {"more/eval.jsonl": "test"}),
    ],
)
def test_the_readme_says_which_files_and_splits(config: str, wanted: dict[str, str]) -> None:
    assert splits(NAMES, README, config) == wanted


def data_files(value: Any) -> str:
    return "---\n" + json.dumps({"configs": [{"data_files": value}]}) + "\n---\n"


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("**/*.jsonl", NAMES),
        ("**/**/**/c.jsonl", ["easy/deep/c.jsonl"]),
        ("**.jsonl", NAMES),
        ("./easy/**", ["easy/a.jsonl", "easy/b.jsonl", "easy/deep/c.jsonl"]),
        ("easy/?.jsonl", ["easy/a.jsonl", "easy/b.jsonl"]),
        ("**/x/*", ["t/x/last.jsonl"]),
        ("*a*", ["hard.jsonl"]),
        ("**e*l*/*.jsonl", []),
        ("**/ard.jsonl", []),
        ("hard.jsonl?", []),
        ("*", ["hard.jsonl"]),
    ],
)
def test_a_pattern_means_what_it_means_to_the_hub(pattern: str, wanted: list[str]) -> None:
    assert [name for name in NAMES if _matches(pattern, name)] == wanted


@pytest.mark.parametrize(
    "pattern", ["**/" * 100 + "x", "**/a/" * 90 + "x", "*a" * 200 + "x", "**a*" * 100 + "x"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Each of these would take a backtracking matcher longer than there is time."""
    began = time.process_time()
    with pytest.raises(RepositoryRefused) as refusal:
        plan(["a/" * 100 + "a" * 100 + ".jsonl"], data_files(pattern))
    assert refusal.value.code == "missing_file" and time.process_time() - began < 10


TWICE = "---\nconfigs:\n- data_files:\n    train: a.jsonl\n    test: '*.jsonl'\n---\n"


@pytest.mark.parametrize(
    ("names", "readme", "config", "code"),
    [
        (["notes.txt"], "", "", "no_rows"),
        (["data/train-00000-of-00003.parquet", "data/train-00002-of-00003.parquet"], "", "", "missing_file"),
        (NAMES, README, "medium", "no_such_config"),
        (NAMES, README.replace("  default: true\n", ""), "", "which_config"),
        (["x.jsonl"], README, "", "missing_file"),
        (["train.jsonl", "other.jsonl"], "", "", "no_split"),
        (["a.jsonl"], "---\nconfigs: [\n---\n", "", "readme"),
        (["a.jsonl"], "---\nconfigs: 5\n---\n", "", "readme"),
        (["a.jsonl"], TWICE, "", "two_splits"),
        (["a.jsonl"], data_files("a" * 501), "", "readme"),
        (["a.jsonl"], data_files(["a.jsonl"] * 1_001), "", "readme"),
        (["a.jsonl"], data_files([["a.jsonl"]]), "", "readme"),
        (["a.jsonl"], "---\n" + "x" * 70_000 + "\n---\n", "", "readme"),
    ],
)
def test_a_directory_that_is_not_clear_is_refused(
    names: list[str], readme: str, config: str, code: str
) -> None:
    with pytest.raises(RepositoryRefused) as refusal:
        plan(names, readme, config)
    assert refusal.value.code == code


def test_a_single_top_folder_is_the_directory_itself() -> None:
    assert root_of(["name/README.md", "name/data/train.jsonl"]) == "name/"
    assert root_of(["train.jsonl", "README.md"]) == ""
    assert root_of(["data/train-00000-of-00001.parquet"]) == ""


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_sparse_file_is_refused_before_its_holes_are_written(tmp_path: Path, form: str) -> None:
    packed, folder = tmp_path / "packed.tar", tmp_path / "unpacked"
    packed.write_bytes(sparse("train.jsonl", 64 * 1024**2, form=form))
    with pytest.raises(RepositoryRefused, match="pack it without --sparse") as refusal:
        unpack(packed, folder)
    assert refusal.value.code == "sparse" and not folder.exists()


@pytest.fixture
def validated(alice: Any, clock: Any, quick_validations: None) -> Any:
    def run(files: dict[str, bytes], **changes: Any) -> Any:
        upload = alice.post("/uploads?filename=sums.tar.gz&purpose=dataset", archive(files)).json()
        asked = alice.post("/dataset-validations", {"upload_id": upload["id"], "mapping": MAPPING, **changes})
        assert asked.status_code == 202, asked.content
        for _ in range(2):
            advance_validations(now=clock.now)
        return alice.get(f"/dataset-validations/{asked.json()['id']}").json()

    return run


FILES = {
    "sums/README.md": b"# no front matter",
    "sums/train.jsonl": rows(1, 2, 3),
    "sums/test.csv": b"q,a\nq9,9\n",
}


def test_files_of_a_directory_become_one_version_with_its_splits(alice: Any, validated: Any) -> None:
    found = validated(FILES)
    assert (found["state"], found["splits"]) == ("VALID", {"test": 1, "train": 3}), found["message"]
    assert found["files"] == [
        {"name": "test.csv", "split": "test", "first_row": 0},
        {"name": "train.jsonl", "split": "train", "first_row": 1},
    ]
    dataset = alice.post("/datasets", {"name": "d"}).json()["id"]
    version = alice.post(f"/datasets/{dataset}/versions", {"validation_id": found["id"]}).json()
    listed = alice.get(f"/dataset-versions/{version['id']}/rows").json()["data"]
    assert [(row["row"], row["split"], row["answer"]) for row in listed] == [
        (0, "test", "9"), (1, "train", "1"), (2, "train", "2"), (3, "train", "3"),
    ]  # fmt: skip


def test_a_fault_names_the_file_and_its_row_there(alice: Any, validated: Any) -> None:
    found = validated({**FILES, "sums/train.jsonl": rows(1, 2) + b'{"q": "x"}\n'})
    assert (found["state"], found["faults"]) == ("INVALID", 1)
    report = alice.get(f"/dataset-validations/{found['id']}/report")
    line = json.loads(b"".join(report.streaming_content))
    assert (line["file"], line["row"], line["line"], line["code"]) == ("train.jsonl", 3, 3, "missing_column")
    assert line["message"].startswith("train.jsonl, line 3: ")


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"../x.jsonl": rows(1)}, "unsafe_name"),
        ({"notes.txt": b"x"}, "no_rows"),
        ({"train.csv": b"q,a\n1\n"}, "wrong_cells"),
        ({"train.parquet": b"PAR1"}, "no_sandbox"),
    ],
)
def test_a_directory_with_a_faulty_file_is_refused_as_a_whole(
    validated: Any, files: dict[str, bytes], code: str
) -> None:
    found = validated(files)
    assert (found["state"], found["errors"][0]["code"]) == ("INVALID", code)


def test_the_bound_on_rows_holds_for_all_files_together(validated: Any) -> None:
    found = validated(FILES, stop_after=2)
    assert (found["state"], found["rows"]) == ("VALID", 2)


def test_the_command_imports_a_folder_and_says_what_it_takes(oolong: Any) -> None:
    for name, data in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    words = ("--name", "from-the-hub", "--prompt-column", "q", "--answer-column", "a")
    done = oolong("dataset", "import", "sums", *words)
    assert done.code == 0 and "from-the-hub@1: 4 rows (test 1, train 3)" in done.err
    assert oolong("dataset", "import", "http://example.org/x.jsonl", *words).code == 2


def test_the_command_imports_an_address_and_a_private_one_is_refused(oolong: Any) -> None:
    words = ("--name", "n", "--prompt-column", "q", "--answer-column", "a")
    done = oolong("dataset", "import", "https://127.0.0.1/x.jsonl", *words)
    assert done.code == 2 and "not at a public address" in done.err
