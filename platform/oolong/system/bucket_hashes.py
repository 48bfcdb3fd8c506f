"""Hashes of a large file, one per bucket, so that several cores hash it at once.

Published weights of a 7B model are 15 GB. One core hashes about 1 GB/s, so the hashes of the buckets are computed in
threads: hashlib releases the interpreter lock.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BUCKET_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_MAX_THREADS = 8


def bucket_sha256(path: Path, *, bucket_bytes: int = BUCKET_BYTES) -> list[str]:
    """Return the sha256 of each bucket of the file, in order; an empty file has one empty bucket."""
    starts = range(0, max(1, path.stat().st_size), bucket_bytes)

    def digest(start: int) -> str:
        found = hashlib.sha256()
        buffer = memoryview(bytearray(min(_READ_BYTES, bucket_bytes)))
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            left = bucket_bytes
            while left and (count := file.readinto(buffer[:left])):
                found.update(buffer[:count])
                left -= count
        return found.hexdigest()

    if len(starts) == 1:
        return [digest(0)]
    threads = min(len(starts), len(os.sched_getaffinity(0)), _MAX_THREADS)
    with ThreadPoolExecutor(threads, thread_name_prefix="hash") as pool:
        return list(pool.map(digest, starts))
