"""One hash per bucket of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from oolong.system.bucket_hashes import bucket_sha256


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 250, 300])
def test_every_byte_is_in_the_hash_of_its_bucket(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "file").write_bytes(content)
    buckets = [content[start : start + 100] for start in range(0, size, 100)] or [b""]
    found = bucket_sha256(tmp_path / "file", bucket_bytes=100)
    assert found == [hashlib.sha256(bucket).hexdigest() for bucket in buckets]
