"""The dashboard is built when its sources changed; where it cannot be, that is said and nothing else fails."""

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
    """A checkout with a dashboard's sources, and no Node in its .venv."""
    root = tmp_path / "checkout"
    (root / "webui" / "src").mkdir(parents=True)
    for name in ("package.json", "package-lock.json", "src/main.tsx"):
        (root / "webui" / name).write_text(name)
    return resolve_paths(root, environ={"OOLONG_HOME": str(tmp_path / "home")}, uid=1000, user_home=tmp_path)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the npm on PATH writes down how it was called."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "calls"


def put_on_path(calls: Path, *, version: str = "v24.1.0", ci: str = "true") -> None:
    tools = calls.parent / "bin"
    tools.mkdir(exist_ok=True)
    for name, text in (("node", f"#!/bin/sh\necho {version}\n"), ("npm", NPM.format(calls=calls, ci=ci))):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)


def test_it_is_built_once_for_the_same_sources(paths: Paths, calls: Path) -> None:
    put_on_path(calls)
    said: list[str] = []
    assert dashboard.build_if_needed(paths, echo=said.append)
    assert (paths.webui / "dist" / "index.html").exists()
    assert dashboard.build_if_needed(paths, echo=said.append)
    assert calls.read_text().splitlines() == ["ci --no-audit --no-fund", "run build"]
    assert "download" in said[0]


def test_changed_sources_are_built_again_and_packages_only_with_their_list(paths: Paths, calls: Path) -> None:
    put_on_path(calls)
    dashboard.build_if_needed(paths, echo=str)
    (paths.webui / "src" / "main.tsx").write_text("changed")
    assert dashboard.build_if_needed(paths, echo=str)
    (paths.webui / "package-lock.json").write_text("changed")
    assert dashboard.build_if_needed(paths, echo=str)
    names = [line.split()[0] for line in calls.read_text().splitlines()]
    assert names == ["ci", "run", "run", "ci", "run"]


def test_without_a_registry_it_says_so_and_the_rest_goes_on(paths: Paths, calls: Path) -> None:
    put_on_path(calls, ci="echo ENOTFOUND registry; exit 1")
    said: list[str] = []
    assert not dashboard.build_if_needed(paths, echo=said.append)
    text = "\n".join(said)
    assert "could not be built (npm ci" in text and "All else goes on" in text and "ENOTFOUND" in text
    assert not (paths.webui / "dist").exists()
    put_on_path(calls)
    assert dashboard.build_if_needed(paths, echo=said.append), "the registry is back"


def test_a_connection_that_breaks_while_packages_come_is_tried_again(paths: Paths, calls: Path) -> None:
    put_on_path(calls, ci="test -e ../tried || { touch ../tried; echo npm error code ECONNRESET; exit 1; }")
    said: list[str] = []
    assert dashboard.build_if_needed(paths, echo=said.append)
    assert "attempt 2 of 4" in said[1]
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["ci", "ci", "run"]


def test_an_old_node_is_no_node(paths: Paths, calls: Path) -> None:
    put_on_path(calls, version="v18.20.0")
    said: list[str] = []
    assert not dashboard.build_if_needed(paths, echo=said.append)
    assert "no Node 20.19 or newer" in said[0]
    assert not calls.exists()
