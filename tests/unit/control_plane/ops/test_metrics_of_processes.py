"""Several web processes of one machine: any of them answers for all, and the dead do not count as alive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest

from control_plane.core.infra import metrics

COUNTS = """
from prometheus_client import Counter, Gauge
Counter("oolong_ingest_lines_total", "x").inc(5)
Gauge("oolong_stream_sockets", "x", multiprocess_mode="livesum").set(3)
print("counted", flush=True)
input()
"""


def test_counts_are_added_up_and_gauges_of_the_killed_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COUNTS],
            env=dict(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"counted\n"
    both = generate_latest(metrics._of_processes()).decode()
    assert "oolong_ingest_lines_total 10.0" in both and "oolong_stream_sockets 6.0" in both
    processes[0].kill()
    processes[0].wait(timeout=60)
    one = generate_latest(metrics._of_processes()).decode()
    assert "oolong_ingest_lines_total 10.0" in one, "a counter never falls"
    assert "oolong_stream_sockets 3.0" in one
    processes[1].kill()
    processes[1].wait(timeout=60)
    for process in processes:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
