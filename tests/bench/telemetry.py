"""Telemetry through one web process, and the dashboard's charts: `python -m tests.bench.telemetry PART` runs one test
of tests/bench/test_telemetry_speed.py or test_dashboard_speed.py and prints its figures as a measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SPEED_TEST = Path(__file__).with_name("test_telemetry_speed.py")
DASHBOARD_TEST = Path(__file__).with_name("test_dashboard_speed.py")
IN_BROWSER = ("pixels", "frames")
REPORT_VARIABLE = "OOLONG_BENCH_REPORT"

# part: the measure, the figure that it is, its unit, and what it is to be compared with
PARTS: dict[str, tuple[str, str, str, str | None]] = {
    "ingest": ("ingest_points_per_second", "points_per_second", "points/s",
               "columns as text: 9.7 µs of the web process and 5.0 of PostgreSQL for a point; as binary 5.1 and 4.6"),
    "delay": ("point_to_frame_p95_ms", "p95_ms", "ms", None),
    "fanout": ("fanout_1000_sockets_p99_ms", "p99_ms", "ms", "a stock Channels layer: 3 to 21 s (research, two cores)"),
    "chart": ("chart_1m_points_ms", "p95_ms", "ms", "the same chart without rollups: median_ms_without_rollups"),
    "run_list": ("run_list_p95_ms", "p95_ms", "ms", None),
    "pixels": ("chart_1m_points_pixels_ms", "p95_ms", "ms", None),
    "frames": ("live_charts_frames_per_second", "frames_per_second", "frames/s", None),
}  # fmt: skip


def measure(part: str) -> dict[str, Any]:
    key, figure, unit, baseline = PARTS[part]
    file = DASHBOARD_TEST if part in IN_BROWSER else SPEED_TEST
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", f"{file}::test_{part}"],
            check=True, stdout=sys.stderr, env={**os.environ, REPORT_VARIABLE: str(report)},
        )  # fmt: skip
        figures = json.loads(report.read_text())["figures"]
    return {
        "key": key, "value": figures[figure], "unit": unit, "baseline": baseline,
        "settings": {**figures, "database": "PostgreSQL without fsync, web and clients on the same machine"},
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
