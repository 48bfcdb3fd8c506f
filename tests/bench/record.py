"""docs/benchmarks/results.json: measure → value, unit, baseline, kind, goal, settings, seeds, date and machine."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.measures import MEASURES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks" / "results.json"
Entry = dict[str, Any]


def read_results(file: Path = RESULTS) -> dict[str, Entry]:
    found: dict[str, Entry] = json.loads(file.read_text()) if file.exists() else {}
    return found


QUIET_LOAD = 0.25  # of each processor: below it nobody else was at work when a program began


def add_results(measured: list[Entry], *, load_before: float | None = None, file: Path = RESULTS) -> None:
    """Put what a program printed into the file; measures that it did not print stay as they were. `load_before` is
    the load average when the program began: it tells whether the machine was busy with something else."""
    results = read_results(file)
    for one in measured:
        entry = results[one["key"]] = entry_of(one)
        if load_before is not None:
            quiet = load_before < QUIET_LOAD * (os.cpu_count() or 1)
            entry["machine"] |= {
                "load_average_before": round(load_before, 2), "was": "quiet" if quiet else "loaded",
            }  # fmt: skip
    ordered = {key: results[key] for key in MEASURES if key in results}
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    temporary.rename(file)


def entry_of(measured: Entry) -> Entry:
    """What a program printed, with what all entries have. Raises KeyError for a measure that the table lacks."""
    measure = MEASURES[measured["key"]]
    settings = dict(measured["settings"])
    seeds = measured.get("seeds", settings.pop("seeds", []))
    settings.pop("emulated", None)  # said by the kind
    return {
        "value": measured["value"],
        "unit": measured["unit"],
        "baseline": measured.get("baseline"),
        "kind": measure.kind,
        "goal": measure.goal or None,
        "met": measure.is_met(measured["value"]),
        "seeds": list(seeds),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "settings": settings,
    }


def machine() -> Entry:
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "load_average_at_the_end": round(os.getloadavg()[0], 2),
    }
