"""Run the test suites one after the other and print the totals."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from local_stack import dashboard, environments, subreaper
from local_stack.configuration import child_environment
from local_stack.errors import StackError
from local_stack.paths import Paths
from local_stack.test_suites import AUDITS, CHECK_UNAVAILABLE, CHECKERS, NOTHING_COLLECTED, SUITES, Suite
from oolong.system.process_handle import become_subreaper


@dataclass
class SuiteResult:
    """Counts of a suite. A suite that cannot start counts as one failure."""

    passed: int = 0
    failed: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)  # test id, reason
    problems: list[str] = field(default_factory=list)

    def add(self, other: SuiteResult) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.problems += other.problems


def run_suites(paths: Paths, *, names: list[str], device: str, pytest_args: list[str]) -> int:
    """Run the suites and print the totals. Return 0 if nothing failed and, in CI, no skip was disallowed."""
    known = {suite.name: suite for suite in SUITES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise StackError(f"no suite named {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in names] or [suite for suite in SUITES if suite.runs_by_default]
    results = paths.var / "test-results"
    results.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    become_subreaper()
    total = SuiteResult()
    seconds: dict[str, float] = {}
    for number, suite in enumerate(chosen, start=1):
        print(f"\n===== {suite.name}", flush=True)
        suite_began = time.monotonic()
        later = chosen[number:] if suite.prefetches_next else []
        with ThreadPoolExecutor(1) as executor:
            ahead = executor.submit(prefetch, paths, later)
            outcome = run_suite(paths, suite, results=results, device=device, pytest_args=pytest_args)
        ahead.result()
        for left in subreaper.terminate_descendants():
            print(f"still running after {suite.name}, terminated: {left}", flush=True)
        seconds[suite.name] = time.monotonic() - suite_began
        total.add(outcome)
        print(
            f"----- {suite.name}: {outcome.passed} passed, {outcome.failed} failed, "
            f"{len(outcome.skipped)} skipped in {seconds[suite.name]:.0f} s",
            flush=True,
        )
    refused = []
    if os.environ.get("CI") == "true":
        refused = disallowed_skips(total.skipped, allowed_skips(paths.root / "tests" / "allowed_skips.txt"))
    _print_totals(total, refused, seconds, time.monotonic() - began)
    return 1 if total.failed or refused else 0


def run_suite(
    paths: Paths, suite: Suite, *, results: Path, device: str, pytest_args: list[str]
) -> SuiteResult:
    if suite.name == "static":
        return run_checkers(paths, CHECKERS)
    if suite.name == "audit":
        return run_checkers(paths, AUDITS)
    if suite.name == "web":
        return run_web_tests(paths, suite, report=results / "web.xml")
    return run_pytest(paths, suite, results=results, device=device, pytest_args=pytest_args)


def prefetch(paths: Paths, later: Sequence[Suite]) -> None:
    """Fetch what later suites need from the network. Each suite repeats the step and fails if it fails again."""
    if any(suite.needs_browser for suite in later):
        problem = prepare_browser(paths)
        if problem:
            print(problem, flush=True)
    elif any(suite.needs_dashboard for suite in later):
        dashboard.build_if_needed(paths, echo=print)


def _print_totals(
    total: SuiteResult, refused: list[tuple[str, str]], seconds: dict[str, float], total_seconds: float
) -> None:
    print("\n===== all suites")
    for name, elapsed in seconds.items():
        print(f"  {elapsed:6.0f} s  {name}")
    print(f"  {total_seconds:6.0f} s  total")
    for problem in total.problems:
        print(f"failed: {problem}")
    for test, reason in total.skipped:
        print(f"skipped: {test}: {reason}")
    for test, _ in refused:
        print(f"disallowed skip (not in tests/allowed_skips.txt): {test}")
    failed = total.failed + len(refused)
    print(f"{total.passed} passed, {failed} failed, {len(total.skipped) - len(refused)} skipped", flush=True)


def run_checkers(paths: Paths, checkers: Mapping[str, list[str]]) -> SuiteResult:
    """Run the checkers; each counts as one test."""
    outcome = SuiteResult()
    # Production settings for Django's check and mypy's plugin; nothing opens a connection.
    settings = {
        "SECRET_KEY": "".join(f"{number:02d}" for number in range(32)),
        "DATABASE_URL": "postgresql://a@b/c",
        "REDIS_URL": "redis://b",
        "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        "OOLONG_PUBLIC_URL": "https://oolong.example",
        "ALLOWED_HOSTS": "oolong.example",
    }
    environment = _environment(paths, None) | settings

    def check(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(paths.venv / "bin" / words[0]), *words[1:]],
            cwd=paths.root,
            env=environment,
            capture_output=True,
            text=True,
        )

    with ThreadPoolExecutor(2) as executor:  # a checker uses one core
        finished = list(executor.map(check, checkers.values()))
    for name, done in zip(checkers, finished, strict=True):
        if done.returncode == 0:
            outcome.passed += 1
            print(f"{name}: ok", flush=True)
        elif done.returncode == CHECK_UNAVAILABLE:
            reason = (done.stdout.strip().splitlines() or ["no output"])[-1]
            outcome.skipped.append((name, reason))
            print(f"{name}: SKIPPED: {reason}", flush=True)
        else:
            outcome.failed += 1
            outcome.problems.append(name)
            print(f"{name}: failed\n" + "\n".join((done.stdout + done.stderr).splitlines()[-40:]), flush=True)
    return outcome


def run_web_tests(paths: Paths, suite: Suite, *, report: Path) -> SuiteResult:
    """Build the dashboard, including its type check, and run its unit tests with the wheel's Node."""
    if not (paths.webui / "package.json").exists():
        print("no webui/")
        return SuiteResult()
    outcome = SuiteResult()
    if dashboard.build_if_needed(paths, echo=print):
        outcome.passed += 1
    else:
        outcome.failed += 1
        outcome.problems.append("web: the dashboard was not built")
    tools = dashboard.wheel_tools(paths)
    if tools is None:
        raise StackError("no Node in .venv: run `python3 manage.py setup`")
    report.unlink(missing_ok=True)
    words = [str(tools / "node"), "node_modules/vitest/vitest.mjs", "run", "--reporter=default"]
    words += ["--reporter=junit", f"--outputFile.junit={report}"]
    try:
        done = subprocess.run(
            words, cwd=paths.webui, env=_environment(paths, None), timeout=suite.timeout_seconds
        )
    except subprocess.TimeoutExpired:
        outcome.add(SuiteResult(failed=1, problems=[f"web: not finished after {suite.timeout_seconds} s"]))
        return outcome
    outcome.add(read_report(report))
    if done.returncode != 0 and not outcome.failed:
        outcome.failed += 1
        outcome.problems.append(f"web: vitest ended with status {done.returncode}")
    return outcome


def prepare_browser(paths: Paths) -> str:
    """Build the dashboard and download the browser outside any test's timeout. Return the error, empty on success."""
    if not dashboard.build_if_needed(paths, echo=print):
        return "the dashboard was not built"
    words = [str(paths.venv_python), "-m", "tests.support.browser"]
    done = subprocess.run(
        words, cwd=paths.root, env=_environment(paths, None), capture_output=True, text=True
    )
    return "" if done.returncode == 0 else f"no browser: {done.stderr.strip()[-1500:]}"


def run_pytest(
    paths: Paths, suite: Suite, *, results: Path, device: str, pytest_args: list[str]
) -> SuiteResult:
    """Run one suite in its own pytest, or its parts concurrently. The counts come from the report files."""
    test_paths = [
        path
        for path in suite.paths
        if (paths.root / path).is_file() or any((paths.root / path).rglob("test_*.py"))
    ]
    if not test_paths:
        print(f"no tests in {', '.join(suite.paths)}")
        return SuiteResult()
    node = environments.node_environment(paths, device=device).python
    if not node.exists():
        raise StackError(f"no node environment at {node}: run `python3 manage.py setup`")
    problem = prepare_browser(paths) if suite.needs_browser else ""
    if problem:
        print(problem, flush=True)
        return SuiteResult(failed=1, problems=[f"{suite.name}: {problem.splitlines()[0]}"])
    python = node if suite.in_node_environment else paths.venv_python
    every = list(chain.from_iterable(suite.parallel_parts))
    parts = [(test_paths, (*suite.ignored_paths, *every))]
    parts += [
        (list(part), (*suite.ignored_paths, *(path for path in every if _is_below(path, part))))
        for part in suite.parallel_parts
    ]
    reports = [results / f"{suite.name}-{number}.xml" for number in range(len(parts))]
    processes = []
    for (chosen, ignored), report in zip(parts, reports, strict=True):
        report.unlink(missing_ok=True)
        words = [str(python), "-m", "pytest", "-q", "-rs", f"--junitxml={report}", *chosen]
        words += [f"--timeout={suite.test_timeout_seconds}"]
        words += [f"--ignore={path}" for path in ignored]
        words += (["-m", suite.marker] if suite.marker else []) + pytest_args
        if suite.in_node_environment or len(parts) > 1:
            words += ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning"]
        output = None if len(parts) == 1 else report.with_suffix(".log").open("w+")
        processes.append(
            (
                subprocess.Popen(
                    words,
                    cwd=paths.root,
                    env=_environment(paths, node),
                    stdout=output,
                    stderr=subprocess.STDOUT if output else None,
                    start_new_session=True,
                ),
                output,
            )
        )
    deadline = time.monotonic() + suite.timeout_seconds
    try:
        codes = [process.wait(timeout=deadline - time.monotonic()) for process, _ in processes]
    except subprocess.TimeoutExpired:
        return SuiteResult(failed=1, problems=[f"{suite.name}: not finished after {suite.timeout_seconds} s"])
    finally:
        for process, output in processes:
            _stop_pytest(process)
            if output is not None:  # print the parts one after the other
                output.seek(0)
                print(output.read(), end="", flush=True)
                output.close()
    outcome = SuiteResult()
    for code, report in zip(codes, reports, strict=True):
        part = read_report(report)
        if code == NOTHING_COLLECTED and pytest_args and set(codes) != {NOTHING_COLLECTED}:
            continue  # the tests selected by -k are in another part
        if code != 0 and not part.failed:
            # Collection errors and crashes leave a report without failures, or no report.
            part.failed += 1
            ended = "no test selected" if code == NOTHING_COLLECTED else f"pytest ended with status {code}"
            part.problems.append(f"{report.stem}: {ended}")
        outcome.add(part)
    return outcome


def _is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether another part runs a file of one of these folders."""
    return any(path.startswith(f"{folder}/") for folder in folders)


def _stop_pytest(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Interrupt a running pytest so that it can clean up; kill it after 10 seconds."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(paths: Paths, node: Path | None) -> dict[str, str]:
    environment = child_environment(paths, {})
    passed = (
        "CI",
        "TERM",
        "CUDA_HOME",
        "OOLONG_TEST_DATABASE_URL",
        "OOLONG_TEST_REDIS_URL",
        "PYTEST_ADDOPTS",
    )
    environment |= {name: os.environ[name] for name in passed if name in os.environ}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("OOLONG_GPU_")}
    # A test's setup downloads the browser through the proxy and with the certificates of this machine.
    environment |= {name: value for name, value in os.environ.items() if _is_network_variable(name.lower())}
    if node is not None:
        environment["OOLONG_NODE_PYTHON"] = str(node)
    return environment


def _is_network_variable(name: str) -> bool:
    return name in (
        "node_extra_ca_certs",
        "ssl_cert_dir",
        "ssl_cert_file",
        "requests_ca_bundle",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    ) or (name.startswith("npm_config_"))


def read_report(report: Path) -> SuiteResult:
    """Read the counts of a JUnit report; zero if it is missing or broken (pytest's exit status reports that)."""
    outcome = SuiteResult()
    try:
        root = ElementTree.parse(report).getroot()
    except (FileNotFoundError, ElementTree.ParseError):
        return outcome
    for case in root.iter("testcase"):
        test = f"{case.get('classname', '')}::{case.get('name', '')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
            outcome.problems.append(test)
        elif skipped is not None:
            outcome.skipped.append((test, skipped.get("message", "")))
        else:
            outcome.passed += 1
    return outcome


def allowed_skips(file: Path) -> list[str]:
    lines = file.read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def disallowed_skips(skipped: list[tuple[str, str]], allowed: list[str]) -> list[tuple[str, str]]:
    """Skips whose test id and reason match no line of the list."""
    return [
        (test, reason)
        for test, reason in skipped
        if not any(part in test or part in reason for part in allowed)
    ]
