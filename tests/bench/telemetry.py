"""Telemetry through one web process: runs tests/bench/test_telemetry_speed.py and prints its figures as measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SPEED_TEST = Path(__file__).with_name("test_telemetry_speed.py")
REPORT_VARIABLE = "OOLONG_BENCH_REPORT"


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(SPEED_TEST)],
            check=True, stdout=sys.stderr, env={**os.environ, REPORT_VARIABLE: str(report)},
        )  # fmt: skip
        figures = {one["name"]: one["figures"] for one in map(json.loads, report.read_text().splitlines())}
    ingest, fan_out = figures["ingest"], figures["fan-out"]
    return [
        {
            "key": "ingest_points_per_second", "value": ingest["points_per_second"], "unit": "points/s",
            "baseline": None, "settings": ingest,
        },
        {
            "key": "point_to_frame_p95_ms", "value": fan_out["p95_ms"], "unit": "ms", "baseline": None,
            "settings": fan_out,
        },
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure()))
