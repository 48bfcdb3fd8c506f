"""Counts the tokens of a dataset version: does the job of job.json in FOLDER, writes result.json last.

Run as `python -m control_plane.assets.background.token_statistics FOLDER`.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec

from control_plane.assets.background import JOB_FILE
from control_plane.assets.background.blob_file import local_file
from control_plane.assets.background.dataset_ingest.progress import ProgressFile
from control_plane.assets.background.token_statistics import lengths
from control_plane.assets.background.token_statistics.columns import measure_columns
from control_plane.assets.background.token_statistics.job import (
    RESULT_FILE,
    Lengths,
    Measured,
    MeasureJob,
    lengths_of,
)
from oolong.sandbox import MEBIBYTE, Limits, Program, SandboxUnsupported, probe_sandbox
from oolong.sandbox.runtime_files import shared_packages

MEMORY_BYTES = 4 * 1024 * MEBIBYTE
FILE_BYTES = 300 * 10**9  # a model may have to be fetched whole to find its tokenizer
TOKENIZER_BYTES = 64 * MEBIBYTE
LIMITS = Limits(
    cpu_seconds=900, wall_seconds=900, total_wall_seconds=920, memory_bytes=2048 * MEBIBYTE, file_bytes=MEBIBYTE,
)  # fmt: skip


class _Refused(Exception):
    pass


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work(Path(sys.argv[1]))
    return 0


def work(folder: Path) -> None:
    """Do the job that lies in the folder; its result appears at once and last."""
    job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=MeasureJob)
    try:
        measured = measure(job, folder)
    except _Refused as refusal:
        measured = Measured(refused=str(refusal))
    unfinished = folder / f"{RESULT_FILE}.tmp"
    unfinished.write_bytes(msgspec.json.encode(measured))
    unfinished.rename(folder / RESULT_FILE)


def measure(job: MeasureJob, folder: Path) -> Measured:
    both = folder / "input"
    tokenizer = _tokenizer_of(local_file(job.model, folder / "model.tar"))
    rows = local_file(job.rows, folder / "rows.jsonl")
    head = len(tokenizer).to_bytes(8, "big") + tokenizer
    with both.open("wb") as target, rows.open("rb") as source:
        target.write(head)
        shutil.copyfileobj(source, target, MEBIBYTE)
    progress = ProgressFile(folder, head=len(head))
    with progress.written():
        found = run_apart(both, folder, progress)
    if found["refused"]:
        raise _Refused(found["refused"])
    with rows.open("rb") as lines:
        columns = measure_columns(lines)
    return Measured(
        isolation="sandbox", vocabulary=found["vocabulary"], duplicates=found["duplicates"],
        conflicts=found["conflicts"],
        without_completion=found["without_completion"], prompts=_lengths(found, "prompts"),
        completions=_lengths(found, "completions"), columns=columns,
    )  # fmt: skip


def run_apart(source: Path, folder: Path, progress: ProgressFile) -> dict[str, Any]:
    """In the sandbox; where there is none, not at all."""
    try:
        sandbox = probe_sandbox(slots=1).require()
        packages = (shared_packages("tokenizers"),)
    except SandboxUnsupported as refusal:
        raise _Refused(f"a tokenizer is loaded only in a sandbox: {refusal}") from refusal
    program = Program(source=Path(lengths.__file__).read_text(), packages=packages, imports=("tokenizers",))
    with source.open("rb") as stdin, (folder / "printed").open("wb") as stdout, progress.reading(stdin):
        outcome = sandbox.run(program, LIMITS, stdin=stdin, stdout=stdout)
    if outcome.error:
        raise _Refused(outcome.error[:500])
    test = outcome.only
    if test.value is None:
        said = test.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise _Refused(f"the rows could not be counted ({test.status}): {said}")
    found: dict[str, Any] = json.loads(test.value)
    return found


def _tokenizer_of(archive: Path) -> bytes:
    with tarfile.open(archive, "r:") as tar:
        for member in tar:
            if member.name == "tokenizer.json" and member.isreg():
                if member.size > TOKENIZER_BYTES:
                    raise _Refused(f"tokenizer.json has {member.size} bytes, at most {TOKENIZER_BYTES}")
                source = tar.extractfile(member)
                assert source is not None  # it is a regular file
                return source.read()
    raise _Refused("the model has no tokenizer.json")


def _lengths(found: dict[str, Any], kind: str) -> dict[str, Lengths]:
    return {
        split: lengths_of({int(length): int(count) for length, count in counts}, found["totals"][kind][split])
        for split, counts in found["counts"][kind].items()
    }


if __name__ == "__main__":
    sys.exit(main())
