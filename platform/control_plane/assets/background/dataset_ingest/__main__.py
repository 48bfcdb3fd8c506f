"""Checks an uploaded dataset file: does the job of job.json in FOLDER, writes result.json last.

Run as `python -m control_plane.assets.background.dataset_ingest FOLDER`.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

import msgspec

from control_plane.assets.background import JOB_FILE
from control_plane.assets.background.blob_file import local_file
from control_plane.assets.background.dataset_ingest import decode as decoder
from control_plane.assets.background.dataset_ingest import repository
from control_plane.assets.background.dataset_ingest.decoded import read_decoded
from control_plane.assets.background.dataset_ingest.job import (
    CANONICAL_FILE,
    FILE_POINTER,
    REPORT_FILE,
    RESULT_FILE,
    ParseJob,
    ParseResult,
    format_of,
)
from control_plane.assets.background.dataset_ingest.progress import ProgressFile
from control_plane.assets.background.dataset_ingest.survey import ColumnProfiler
from control_plane.assets.datasets import rows
from control_plane.assets.datasets.cells import RowFault
from control_plane.core.api.field_error import FieldError
from oolong.sandbox import MEBIBYTE, Limits, Program, SandboxUnsupported, Status, probe_sandbox
from oolong.sandbox.runtime_files import shared_packages

PlaceNames = Callable[[int, int], str]  # row among all, from 0, and where its file has it

MEMORY_BYTES = 4 * 1024 * MEBIBYTE
FILE_BYTES = 24 * 10**9
FAULTS_KEPT = 10_000
ERRORS_SHOWN = 50
DECODE_LIMITS = Limits(
    cpu_seconds=900, wall_seconds=900, total_wall_seconds=920, memory_bytes=1024 * MEBIBYTE, file_bytes=FILE_BYTES,
)  # fmt: skip
SAID = {
    Status.MEMORY_LIMIT: "reading it takes more than 1 GiB of memory; split it, or write smaller row groups",
    Status.CPU_LIMIT: "reading it takes longer than 15 minutes; split it",
    Status.WALL_LIMIT: "reading it takes longer than 15 minutes; split it",
    Status.OUTPUT_LIMIT: "decompressed, it is larger than what is allowed; split it",
}


def main() -> int:
    folder = Path(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work(folder)
    return 0


def work(folder: Path) -> None:
    """Do the job that lies in the folder; its result appears at once and last."""
    job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=ParseJob)
    result = parse(job, folder)
    unfinished = folder / f"{RESULT_FILE}.tmp"
    unfinished.write_bytes(msgspec.json.encode(result))
    unfinished.rename(folder / RESULT_FILE)


def parse(job: ParseJob, folder: Path) -> ParseResult:
    """Decode, then map. The canonical rows are kept only when no row has a fault; a fault makes a report."""
    progress = ProgressFile(folder)
    with progress.written():
        return _parse(job, folder, progress)


def _parse(job: ParseJob, folder: Path, progress: ProgressFile) -> ParseResult:
    job = msgspec.structs.replace(job, source=str(local_file(job.source, folder / "source")))
    decoded = folder / "decoded.jsonl"
    isolation, counts, files = _decode_all(job, decoded, folder, progress)
    if counts["refused"] is not None:
        decoded.unlink(missing_ok=True)
        whole = {
            "row": None,
            "line": None,
            "column": None,
            "pointer": FILE_POINTER,
            **counts["refused"],
            "sample": "",
        }
        (folder / REPORT_FILE).write_bytes(msgspec.json.encode(whole) + b"\n")
        return ParseResult(
            isolation=isolation,
            rows=counts["rows"],
            decoded_bytes=counts["decoded_bytes"],
            delimiter=counts["delimiter"],
            refused=counts["refused"],
        )
    survey = ColumnProfiler()
    places: dict[int, int] = {}
    with decoded.open("rb") as source:
        written, sha256 = _map(job, source, folder, survey, files, progress)
        if survey.first_conflicts:
            source.seek(0)
            wanted = {number for pair in survey.first_conflicts for number in pair}
            places = {
                number: row.place for number, row in enumerate(read_decoded(source)) if number in wanted
            }
    decoded.unlink()
    kept = job.mapping is not None and job.stop_after is None and not written.errors
    named = _names_of_places(files)
    return ParseResult(
        isolation=isolation,
        files=[
            {"name": file.name, "split": file.split, "first_row": file.first_row}
            for file in files
            if file.name
        ],
        rows=survey.rows + len(written.errors),
        decoded_bytes=counts["decoded_bytes"],
        columns=survey.columns(),
        sample=survey.sample,
        rendered=survey.rendered,
        faults=len(written.errors),
        faults_by_code=dict(Counter(error.code for error in written.errors)),
        faults_cut=len(written.errors) >= FAULTS_KEPT,
        errors=[error.as_json() for error in written.errors[:ERRORS_SHOWN]],
        splits=dict(written.splits),
        with_completion=dict(written.with_completion),
        with_pair=dict(written.with_pair),
        sources=written.sources.as_json(),
        offsets=written.offsets,
        delimiter=counts["delimiter"],
        duplicates=survey.duplicates,
        conflicts=survey.conflicts,
        first_conflicts=[
            {"row": named(row, places[row]), "earlier": named(earlier, places[earlier])}
            for row, earlier in survey.first_conflicts
        ],
        leaks=dict(survey.leaks),
        prompt_characters=survey.prompt_characters(),
        canonical_sha256=sha256 if kept else "",
        canonical_bytes=(folder / CANONICAL_FILE).stat().st_size if kept else 0,
    )


@dataclass(frozen=True)
class Segment:
    """Rows of one file among the decoded ones."""

    name: str  # in a dataset directory; "" of a file by itself
    split: str  # of rows that name none; "" of a file by itself
    first_row: int
    format: str


def _decode_all(
    job: ParseJob, target: Path, folder: Path, progress: ProgressFile
) -> tuple[str, dict[str, Any], list[Segment]]:
    """One file, or the files of a dataset directory behind each other; all limits hold for the whole."""
    if job.format != "huggingface":
        return (*decode(job, target, progress), [Segment("", "", 0, job.format)])
    unpacked = folder / "repository"
    try:
        names = repository.unpack(Path(job.source), unpacked)
        root = repository.root_of(names)
        inside = [name.removeprefix(root) for name in names]
        readme = next((unpacked / root / name for name in inside if name.lower() == "readme.md"), None)
        text = readme.read_text("utf-8", "replace") if readme else ""
        planned = repository.plan(inside, text, job.config)
    except repository.RepositoryRefused as refusal:
        return "", _refused(refusal.code, str(refusal)), []
    segments: list[Segment] = []
    isolation, rows_before, bytes_before, delimiter = "", 0, 0, ""
    part = folder / "part.jsonl"
    with target.open("wb") as whole:
        for file in planned:
            left = None if job.stop_after is None else job.stop_after - rows_before
            if left is not None and left <= 0:
                break
            format, compression = format_of(file.name)
            limits = {
                **job.limits, "rows": job.limits["rows"] - rows_before,
                "decoded_bytes": job.limits["decoded_bytes"] - bytes_before,
            }  # fmt: skip
            one = msgspec.structs.replace(
                job, source=str(unpacked / root / file.name), format=format, compression=compression,
                stop_after=left, limits=limits, filename=PurePosixPath(file.name).name,
            )  # fmt: skip
            isolation, counts = decode(one, part, progress)
            if counts["refused"] is not None:
                message = f"{file.name}: {counts['refused']['message']}"
                return isolation, _refused(counts["refused"]["code"], message), []
            segments.append(Segment(file.name, file.split, rows_before, format))
            delimiter = delimiter or counts["delimiter"]
            with part.open("rb") as decoded:
                shutil.copyfileobj(decoded, whole, MEBIBYTE)
            rows_before += counts["rows"]
            bytes_before += counts["decoded_bytes"]
    counts = {"rows": rows_before, "decoded_bytes": bytes_before, "refused": None, "delimiter": delimiter}
    return isolation, counts, segments


def decode(job: ParseJob, target: Path, progress: ProgressFile) -> tuple[str, dict[str, Any]]:
    """In the sandbox. Where there is none, text is read in this process; Parquet and zstd are refused."""
    common = {
        "filename": job.filename, "format": job.format, "compression": job.compression, "limits": job.limits,
        "stop_after": job.stop_after,
    }  # fmt: skip
    needs_arrow = job.format == "parquet" or job.compression == "zstd"
    try:
        sandbox = probe_sandbox(slots=1).require()
    except SandboxUnsupported as refusal:
        if needs_arrow:
            return "none", _refused(
                "no_sandbox", f"{job.format} {job.compression} is read only in a sandbox: {refusal}"
            )
        with Path(job.source).open("rb") as source, target.open("wb") as output, progress.reading(source):
            return "process", decoder.decode(source, output, common)
    program = Program(
        source=Path(decoder.__file__).read_text(),
        common=common,
        packages=(shared_packages("pyarrow"),) if needs_arrow else (),
        imports=("pyarrow",) if needs_arrow else (),
    )
    with Path(job.source).open("rb") as source, target.open("wb") as output, progress.reading(source):
        outcome = sandbox.run(program, DECODE_LIMITS, stdin=source, stdout=output)
    if outcome.error:
        return "sandbox", _refused("sandbox_error", outcome.error[:500])
    test = outcome.only
    if test.status is Status.OK and test.value is not None:
        counts: dict[str, Any] = json.loads(test.value)
        return "sandbox", counts
    said = SAID.get(test.status, test.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:500])
    return "sandbox", _refused(str(test.status), f"the file cannot be read: {said or test.status}")


def _map(
    job: ParseJob,
    source: IO[bytes],
    folder: Path,
    survey: ColumnProfiler,
    files: list[Segment],
    progress: ProgressFile,
) -> tuple[rows.Written, str]:
    decoded = _counted(read_decoded(source), progress)
    named = _names_of_places(files)
    if job.mapping is None:
        return _look(decoded, survey, named), ""
    mapping = rows.Mapping(**job.mapping)
    segment_at = _segment_finder(files)
    mappings = {
        file.name: replace(mapping, default_split=file.split) if file.split else mapping for file in files
    }
    with (folder / CANONICAL_FILE).open("wb") as file:
        target = _Hashed(file)
        written = rows.write_canonical(
            decoded, mapping, target, errors_kept=FAULTS_KEPT, seen=survey.see,
            mapping_at=lambda number: mappings[segment_at(number).name], name_place=named,
        )  # fmt: skip
        file.flush()
        os.fsync(file.fileno())
    with (folder / REPORT_FILE).open("wb") as report:
        for error, sample, place in zip(written.errors, written.samples, written.places, strict=True):
            report.write(msgspec.json.encode(_report_line(error, sample, place, segment_at)) + b"\n")
    if written.errors:
        (folder / CANONICAL_FILE).unlink()
    return written, target.digest.hexdigest()


def _counted(decoded: Iterator[rows.DecodedRow], progress: ProgressFile) -> Iterator[rows.DecodedRow]:
    for row in decoded:
        progress.rows_seen += 1
        yield row


def _look(decoded: Iterator[rows.DecodedRow], survey: ColumnProfiler, named: PlaceNames) -> rows.Written:
    """Only what the columns are; a row that cannot be read is a fault here too."""
    written = rows.Written()
    for number, row in enumerate(decoded):
        try:
            if row.fault is not None:
                raise row.fault
            survey.see_raw(rows.read_row(row.data))
        except RowFault as fault:
            written.errors.append(rows.fault_of_row(fault, number, named(number, row.place)))
            if len(written.errors) >= ERRORS_SHOWN:
                break
    return written


def _segment_finder(files: list[Segment]) -> Callable[[int], Segment]:
    firsts = [file.first_row for file in files]
    return lambda number: files[bisect_right(firsts, number) - 1]


def _names_of_places(files: list[Segment]) -> PlaceNames:
    """`line 5`, as editors count, or `row 5` of a Parquet file; with its file in a dataset directory."""
    segment_at = _segment_finder(files)

    def named(number: int, place: int) -> str:
        segment = segment_at(number)
        where = f"{'row' if segment.format == 'parquet' else 'line'} {place}"
        return f"{segment.name}, {where}" if segment.name else where

    return named


def _report_line(
    error: FieldError, sample: str, place: int, segment_at: Callable[[int], Segment]
) -> dict[str, Any]:
    parts = error.pointer.split("/")
    if len(parts) < 3 or parts[1] != "rows":
        return {"row": None, "line": None, "column": None, **error.as_json(), "sample": sample}
    number = int(parts[2])
    segment = segment_at(number)
    return {
        **({"file": segment.name} if segment.name else {}),
        "row": number - segment.first_row + 1,
        "line": None if segment.format == "parquet" else place,
        "column": parts[3].replace("~1", "/").replace("~0", "~") if len(parts) > 3 else None,
        **error.as_json(),
        "sample": sample,
    }


def _refused(code: str, message: str) -> dict[str, Any]:
    return {
        "rows": 0, "decoded_bytes": 0, "delimiter": "", "refused": {"code": code, "message": message},
    }  # fmt: skip


class _Hashed:
    """A file whose bytes are hashed on their way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._bytes = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._bytes += len(data)
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._bytes


if __name__ == "__main__":
    sys.exit(main())
