"""What processes use, read from a /proc that changes."""

from __future__ import annotations

import os

import pytest

from oolong.sandbox.resource_usage import measure_usage


def test_a_process_that_closes_itself_between_two_reads_counts_its_pages_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "readlink", refused)
    assert measure_usage(os.getpid()).memory_bytes > 0
