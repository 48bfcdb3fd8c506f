"""The dashboard is built when its sources change; a failed build is reported and nothing else fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_stack import dashboard
from local_stack.paths import Paths, resolve_paths

NPM = """#!/bin/sh
echo "$*" >> "{calls}"
test "$1" = ci && {{ {ci} ; }}
test "$1" = ci && mkdir -p node_modules
test "$1" = run && mkdir -p dist && echo built > dist/index.html
exit 0
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A checkout with dashboard sources and no Node in .venv."""
    root = tmp_path / "checkout"
    (root / "webui" / "src").mkdir(parents=True)
    for name in ("package.json", "package-lock.json", "src/main.tsx"):
        (root / "webui" / name).write_text(name)
    return resolve_paths(root, environ={"OOLONG_HOME": str(tmp_path / "home")}, uid=1000, user_home=tmp_path)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File in which the npm on PATH records its calls."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "calls"


def install_fake_npm(calls: Path, *, version: str = "v24.1.0", ci: str = "true") -> None:
    tools = calls.parent / "bin"
    tools.mkdir(exist_ok=True)
    for name, text in (("node", f"#!/bin/sh\necho {version}\n"), ("npm", NPM.format(calls=calls, ci=ci))):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)


def test_unchanged_sources_are_built_once(paths: Paths, calls: Path) -> None:
    install_fake_npm(calls)
    output: list[str] = []
    assert dashboard.build_if_needed(paths, echo=output.append)
    assert (paths.webui / "dist" / "index.html").exists()
    assert dashboard.build_if_needed(paths, echo=output.append)
    assert calls.read_text().splitlines() == ["ci --no-audit --no-fund", "run build"]
    assert "download" in output[0]


def test_changed_sources_rebuild_and_changed_lock_reinstalls(paths: Paths, calls: Path) -> None:
    install_fake_npm(calls)
    dashboard.build_if_needed(paths, echo=str)
    (paths.webui / "src" / "main.tsx").write_text("changed")
    assert dashboard.build_if_needed(paths, echo=str)
    (paths.webui / "package-lock.json").write_text("changed")
    assert dashboard.build_if_needed(paths, echo=str)
    names = [line.split()[0] for line in calls.read_text().splitlines()]
    assert names == ["ci", "run", "run", "ci", "run"]


def test_unreachable_registry_is_reported_and_not_fatal(paths: Paths, calls: Path) -> None:
    install_fake_npm(calls, ci="echo ENOTFOUND registry; exit 1")
    output: list[str] = []
    assert not dashboard.build_if_needed(paths, echo=output.append)
    text = "\n".join(output)
    assert "could not be built (npm ci" in text and "Everything else works" in text and "ENOTFOUND" in text
    assert not (paths.webui / "dist").exists()
    install_fake_npm(calls)
    assert dashboard.build_if_needed(paths, echo=output.append), "the registry is back"


def test_broken_connection_is_retried(paths: Paths, calls: Path) -> None:
    install_fake_npm(
        calls, ci="test -e ../tried || { touch ../tried; echo npm error code ECONNRESET; exit 1; }"
    )
    output: list[str] = []
    assert dashboard.build_if_needed(paths, echo=output.append)
    assert "attempt 2 of 4" in output[1]
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["ci", "ci", "run"]


def test_old_node_is_not_used(paths: Paths, calls: Path) -> None:
    install_fake_npm(calls, version="v18.20.0")
    output: list[str] = []
    assert not dashboard.build_if_needed(paths, echo=output.append)
    assert "no Node 20.19 or newer" in output[0]
    assert not calls.exists()
