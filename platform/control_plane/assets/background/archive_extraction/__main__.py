"""Extracts a model archive: does the job of job.json in FOLDER, writes result.json last.

Run as `python -m control_plane.assets.background.archive_extraction FOLDER`.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import IO

import msgspec

from control_plane.assets.background import JOB_FILE
from control_plane.assets.background.archive_extraction.job import TAR_FILE, UnfoldJob
from control_plane.assets.background.blob_file import local_file
from control_plane.assets.base_models import archives
from oolong.contracts.model_report import RESULT_FILE, ModelReport
from oolong.model_validation import InvalidModel, find_root, invalid_report, validate_model
from oolong.sandbox import MEBIBYTE

MEMORY_BYTES = 2 * 1024 * MEBIBYTE
FILE_BYTES = 300 * 10**9


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work(Path(sys.argv[1]))
    return 0


def work(folder: Path) -> None:
    """Do the job that lies in the folder; its result appears at once and last."""
    job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=UnfoldJob)
    unfinished = folder / f"{RESULT_FILE}.tmp"
    unfinished.write_bytes(msgspec.json.encode(unfold(job, folder)))
    unfinished.rename(folder / RESULT_FILE)


def unfold(job: UnfoldJob, folder: Path) -> ModelReport:
    """Unpack, check, and pack again; the tar is kept only when there is no fault."""
    archive, unpacked = local_file(job.archive, folder / "archive"), folder / "unpacked"
    unpacked.mkdir()
    try:
        with archive.open("rb") as source:
            archives.extract(source, unpacked, packed_bytes=archive.stat().st_size)
        root = find_root(unpacked)
        report = validate_model(root)
        if report.faults:
            return report
        with (folder / TAR_FILE).open("wb") as file:
            tar = _Hashed(file)
            archives.write_tar(root, tar)
            file.flush()
            os.fsync(file.fileno())
        return msgspec.structs.replace(report, tar_sha256=tar.digest.hexdigest(), tar_bytes=tar.bytes)
    except InvalidModel as error:
        return invalid_report(str(error), error.faults)
    finally:
        shutil.rmtree(unpacked)


class _Hashed:
    """A file whose bytes are hashed on their way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.bytes, self.digest = file, 0, hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self.bytes += len(data)
        self.digest.update(data)
        return self._file.write(data)


if __name__ == "__main__":
    sys.exit(main())
