"""The test suites (`--lanes`): their tests, environment and prerequisites."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """One test suite: pytest in one environment, the static checkers (`static`) or the dashboard's tests (`web`)."""

    name: str
    paths: tuple[str, ...] = ()
    ignored_paths: tuple[str, ...] = ()
    parallel_parts: tuple[
        tuple[str, ...], ...
    ] = ()  # paths that each run in their own pytest, alongside the rest; a file of one part's folder may be in another
    marker: str = ""  # pytest's -m expression; "" for all tests
    in_node_environment: bool = False
    runs_by_default: bool = True
    needs_browser: bool = False
    needs_dashboard: bool = False
    prefetches_next: bool = False  # fetch what later suites need from the network while this one runs
    # Limits for hanging tests, generous enough for a slow or busy machine.
    timeout_seconds: int = 7200
    test_timeout_seconds: int = 600  # of a test without its own timeout


NOTHING_COLLECTED = 5  # exit status of pytest

SUITES = (
    Suite("static"),
    # The unit tests form two suites: tests/conftest.py marks those that use PostgreSQL or Valkey as `database`.
    Suite(
        "unit",
        paths=("tests/unit", "tests/api/test_core.py"),
        ignored_paths=("tests/unit/trainers",),
        # These tests wait half of the time for processes and timers: the parts keep two cores busy.
        parallel_parts=(
            ("tests/unit/rollout", "tests/unit/rewards"),
            ("tests/unit/agent", "tests/unit/cli"),
        ),
        marker="not database",
    ),
    Suite(
        "database",
        paths=("tests/unit", "tests/api/test_core.py"),
        ignored_paths=("tests/unit/trainers",),
        parallel_parts=(
            ("tests/unit/control_plane/runs",),
            (
                "tests/unit/control_plane/assets",
                "tests/unit/control_plane/ops",
                "tests/unit/control_plane/runs/test_evaluators.py",
            ),
            (
                "tests/unit/control_plane/tunnel",
                "tests/unit/control_plane/telemetry",
                "tests/unit/control_plane/runs/test_drain_deadline.py",
            ),
        ),
        marker="database",
        prefetches_next=True,
    ),
    Suite("audit", runs_by_default=False),
    Suite("web", needs_dashboard=True),
    Suite("trainer", paths=("tests/unit/trainers",), in_node_environment=True),
    Suite(
        "integration",
        paths=("tests/integration",),
        ignored_paths=("tests/integration/trainers",),
        # Each of the three waits half of the time: for an engine, a trainer, a process.
        parallel_parts=(
            ("tests/integration/rollout",),
            (
                "tests/integration/agent",
                "tests/integration/local_stack",
                "tests/integration/ops",
            ),
        ),
    ),
    Suite(
        "trainer-integration",
        paths=("tests/integration/trainers",),
        parallel_parts=(
            (
                "tests/integration/trainers/test_rl_trainer.py",
                "tests/integration/trainers/test_sft_trainer.py",
            ),
        ),
        in_node_environment=True,
    ),
    # Runs in under two minutes: required for each change of the sandbox.
    Suite("attacks", paths=("tests/sandbox",), marker="core"),
    Suite(
        "e2e",
        paths=("tests/e2e",),
        parallel_parts=(
            ("tests/e2e/test_real_run.py", "tests/e2e/test_pages.py", "tests/e2e/test_run_page.py"),
        ),
        needs_browser=True,
        needs_dashboard=True,
    ),
    Suite("api", paths=("tests/api",), runs_by_default=False),
    Suite("docs", paths=("tests/docs",), runs_by_default=False),
    Suite("faults", paths=("tests/faults",), runs_by_default=False),
    # All of `attacks` and the longer tests.
    Suite("sandbox", paths=("tests/sandbox",), runs_by_default=False),
    Suite("sim", paths=("tests/unit/rollout", "tests/sim"), runs_by_default=False),
    # Fetches a Slurm from Debian's registry at first use, and skips where there is none.
    Suite("slurm", paths=("tests/slurm",), runs_by_default=False),
    Suite("gpu", paths=("tests/gpu",), in_node_environment=True, runs_by_default=False),
)

CHECKERS: dict[str, list[str]] = {
    "mypy": ["mypy"],
    "mypy control_plane": [
        "mypy",
        "--config-file",
        "platform/control_plane/mypy.ini",
        "--cache-dir",
        ".mypy_cache/control_plane",  # two of them at the same time do not share one
        "platform/control_plane",
    ],
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "import-linter": ["lint-imports"],
    "bandit": ["python", "tests/tools/security_checks.py", "code"],
    "SDK models": ["python", "-m", "tests.tools.sdk_models", "--check"],
    "django check --deploy": ["python", "-m", "django", "check", "--deploy", "--fail-level", "WARNING"],
}

# Needs the package index, so it is a separate suite. Exit status 77: unavailable; the last line has the reason.
AUDITS: dict[str, list[str]] = {"pip-audit": ["python", "tests/tools/security_checks.py", "packages"]}
CHECK_UNAVAILABLE = 77
