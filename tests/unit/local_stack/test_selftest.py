"""The totals match the reports, and CI fails on disallowed skips."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local_stack import selftest
from local_stack.selftest import allowed_skips, disallowed_skips, read_report
from local_stack.test_suites import SUITES
from tests.support import isolation

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.unit.a" name="test_one"/>
<testcase classname="tests.unit.a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.unit.a" name="test_three"><error message="setup"/></testcase>
<testcase classname="tests.unit.a" name="test_four"><skipped message="needs an NVIDIA GPU"/></testcase>
</testsuite></testsuites>"""


def test_report_counts_are_read(tmp_path: Path):
    (tmp_path / "r.xml").write_text(REPORT)
    outcome = read_report(tmp_path / "r.xml")
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert outcome.skipped == [("tests.unit.a::test_four", "needs an NVIDIA GPU")]
    assert "tests.unit.a::test_two" in outcome.problems


def test_missing_report_counts_nothing(tmp_path: Path):
    assert read_report(tmp_path / "none.xml").passed == 0


def test_only_skips_on_the_list_are_allowed(tmp_path: Path):
    (tmp_path / "list.txt").write_text("# why\nneeds an NVIDIA GPU\n\n")
    allowed = allowed_skips(tmp_path / "list.txt")
    skipped = [("tests.gpu::a", "needs an NVIDIA GPU"), ("tests.unit::b", "no browser")]
    assert disallowed_skips(skipped, allowed) == [("tests.unit::b", "no browser")]


def test_repository_allows_only_gpu_isolation_and_slurm_skips(checkout):
    allowed = allowed_skips(checkout / "tests" / "allowed_skips.txt")
    assert isolation.REASON in allowed
    assert all("GPU" in line or line in (isolation.REASON, "Slurm cannot be had here") for line in allowed)


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str]]]:
    """Run suites that only say that they ran; the status, and what happened in order. The browser comes at `fetch`."""

    def run(names: list[str], fetch: Callable[[], str]) -> tuple[int, list[str]]:
        said: list[str] = []
        fetching = threading.Event()

        def fetched(_: Any) -> str:
            fetching.set()
            problem = fetch()
            said.append(f"fetched{problem}")
            return problem

        def suite_ran(_: Any, suite: Any, **__: Any) -> selftest.SuiteResult:
            if suite.name == "database" and len(names) > 1:
                assert fetching.wait(60), "the fetch runs alongside this suite"
            problem = fetched(None) if suite.needs_browser else ""
            said.append(suite.name)
            return (
                selftest.SuiteResult(failed=1, problems=[problem])
                if problem
                else selftest.SuiteResult(passed=1)
            )

        monkeypatch.setattr(selftest, "prepare_browser", fetched)
        monkeypatch.delenv("CI", raising=False)  # no list of permitted skips is asked for
        monkeypatch.setattr(selftest, "run_suite", suite_ran)
        monkeypatch.setattr(selftest, "become_subreaper", lambda: None)
        monkeypatch.setattr(selftest.subreaper, "terminate_descendants", list)
        paths: Any = SimpleNamespace(var=tmp_path, root=tmp_path)
        return selftest.run_suites(paths, names=names, device="cpu", pytest_args=[]), said

    return run


def test_browser_is_fetched_during_the_database_suite(suites) -> None:
    status, said = suites(["database", "integration", "e2e"], fetch=lambda: "")
    assert status == 0
    assert sorted(said[:2]) == ["database", "fetched"] and said[2:] == ["integration", "fetched", "e2e"]


def test_suite_retries_a_failed_browser_download_and_fails(suites) -> None:
    status, said = suites(["database", "e2e"], fetch=lambda: ": no network")
    assert status == 1
    assert said[-2:] == ["fetched: no network", "e2e"] and said.count("fetched: no network") == 2


def test_nothing_is_fetched_for_unselected_suites(suites) -> None:
    assert suites(["database"], fetch=lambda: "") == (0, ["database"])


def test_every_unit_test_is_in_exactly_one_suite() -> None:
    unit, database = (next(suite for suite in SUITES if suite.name == name) for name in ("unit", "database"))
    assert (unit.paths, unit.ignored_paths) == (database.paths, database.ignored_paths)
    assert unit.marker == f"not {database.marker}"
    assert unit.runs_by_default and database.runs_by_default
    trainer = next(suite for suite in SUITES if suite.name == "trainer")
    assert unit.ignored_paths == trainer.paths, "what the others leave out has a suite of its own"
