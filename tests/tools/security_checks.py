"""Two checks of the code and of what it loads: `code` (bandit) and `packages` (pip-audit over the pinned lists).

What was looked at and accepted stands with its reason in constraints/accepted.toml; an entry that nothing needs any
more is a failure too. Exit status 77: the check could not be made here, and the last line says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
ACCEPTED = ROOT / "constraints" / "accepted.toml"
SOURCES = ("platform", "gpu_agents", "trainers", "manage.py")
LISTS = ("platform.txt", "node.txt", "node-torch.txt", "node-nodeps.txt")
NOT_MADE = 77


@dataclass(frozen=True)
class Finding:
    what: str  # B108, CVE-2026-1234
    where: str  # a file, or a package with its version
    words: str


def main(words: list[str]) -> int:
    match words:
        case ["code"]:
            return judge(code(), accepted("code"))
        case ["packages"]:
            found, unknown = packages()
            status = judge(found, accepted("package"))
            if status == 0 and unknown:
                print(f"not checked: {len(unknown)} packages could not be looked up, {unknown[0]} for one")
                return NOT_MADE
            return status
        case _:
            print(__doc__)
            return 2


def judge(found: Iterable[Finding], reasons: list[dict[str, str]]) -> int:
    unused = list(reasons)
    open_ones = []
    for finding in found:
        fitting = [entry for entry in reasons if covers(entry, finding)]
        unused = [entry for entry in unused if entry not in fitting]
        if not fitting:
            open_ones.append(finding)
    for finding in open_ones:
        print(f"{finding.where}: {finding.what}: {finding.words}")
    for entry in unused:
        print(f"accepted without need, take it out of {ACCEPTED.name}: {entry['what']} in {entry['where']}")
    return 1 if open_ones or unused else 0


def covers(entry: dict[str, str], finding: Finding) -> bool:
    return entry["what"] == finding.what and fnmatch(finding.where, entry["where"])


def accepted(kind: str) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = tomllib.loads(ACCEPTED.read_text()).get(kind, [])
    without = [entry for entry in entries if not entry.get("reason", "").strip()]
    if without:
        raise SystemExit(f"{ACCEPTED.name}: an entry without a reason: {without[0]}")
    return entries


def code() -> list[Finding]:
    """From medium severity on: below it are asserts and the use of subprocess as such."""
    report = run(
        "bandit", "--quiet", "--recursive", *SOURCES, "--severity-level", "medium", "--format", "json"
    )
    if report["errors"]:
        raise SystemExit(f"bandit could not read all: {report['errors']}")
    return [Finding(row["test_id"], row["filename"], row["issue_text"]) for row in report["results"]]


def packages() -> tuple[list[Finding], list[str]]:
    """Known weaknesses, and the packages that could not be looked up: without the index that is all of them."""
    found, unknown = [], []
    for name in LISTS:
        path = ROOT / "constraints" / name
        report = run(
            "pip-audit", "-r", str(path), "--disable-pip", "--no-deps", "--format", "json", "--timeout", "5"
        )
        for package in report["dependencies"]:
            label = f"{package['name']} {package.get('version', '')}".strip()
            if "skip_reason" in package:
                unknown.append(label)
            for weakness in package.get("vulns", []):
                found.append(Finding(weakness["id"], label, weakness.get("description", "")[:300]))
    return found, unknown


def run(tool: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run([str(BIN / tool), *arguments], cwd=ROOT, capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        print(done.stderr[-2000:])
        print(f"not checked: {tool} gave no report")
        raise SystemExit(NOT_MADE if tool == "pip-audit" else 1) from None
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
