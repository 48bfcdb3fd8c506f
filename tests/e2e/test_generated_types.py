"""The dashboard's types match the API that the code serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_types_and_spec_schema_are_up_to_date(built_dashboard: Path) -> None:
    done = subprocess.run(
        [sys.executable, "webui/generate_types.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_outdated_types_are_detected(built_dashboard: Path, tmp_path: Path) -> None:
    """Negative control: the check compares contents, so it must fail for a changed file."""
    source = (ROOT / "webui" / "generate_types.py").read_text()
    types = ROOT / "webui" / "src" / "api" / "schema.d.ts"
    behind = tmp_path / "schema.d.ts"
    behind.write_text(types.read_text().replace("metrics_seq", "metrics_sequence"))
    changed = source.replace(
        'TYPES = WEBUI / "src" / "api" / "schema.d.ts"', f"TYPES = Path({str(behind)!r})"
    )
    changed = changed.replace("path.relative_to(ROOT)", "path").replace(
        "Path(__file__).resolve().parent", f"Path({str(ROOT / 'webui')!r})"
    )
    script = tmp_path / "generate_types.py"
    script.write_text(changed)
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1
    assert "schema.d.ts is out of date" in done.stdout
