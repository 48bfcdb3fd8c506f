"""SIGKILL at any moment of a commit leaves checkpoints that verify, each of one step, and loses none that was told."""

from __future__ import annotations

from pathlib import Path

from tests.bench.checkpoint_kills import kill_often


def test_kills_during_commit_leave_only_complete_checkpoints(tmp_path: Path) -> None:
    """`make bench` does it 120 times."""
    found = kill_often(tmp_path, kills=10, seed=5)
    assert (found.unreadable, found.mixed, found.lost) == (0, 0, 0), found
    assert found.kills == 10 and found.checked >= 20
    assert found.interrupted >= 3, "the kills missed the commits, so this test has shown nothing"
