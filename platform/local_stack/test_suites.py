"""What the suites of the suite are: their tests, the environment they run in, what they need before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """A part of the suite: pytest in one of the environments, the checkers (`static`) or Node's tests (`web`)."""

    name: str
    paths: tuple[str, ...] = ()
    ignored_paths: tuple[str, ...] = ()
    parallel_parts: tuple[
        tuple[str, ...], ...
    ] = ()  # paths that each run in their own pytest, alongside the rest
    marker: str = ""  # which tests of the paths, as pytest's -m takes it; "": all
    in_node_environment: bool = False
    runs_by_default: bool = True
    needs_browser: bool = False
    needs_dashboard: bool = False
    prefetches_next: bool = (
        False  # what later suites of the run need from the network comes while this one computes
    )
    # Both only end what hangs: half the speed, and ten times the load, must not reach them.
    timeout_seconds: int = 7200
    test_timeout_seconds: int = 600  # of one test that names no limit of its own


NOTHING_COLLECTED = 5  # what pytest ends with when no test fits

SUITES = (
    Suite("static"),
    # The unit tests are two suites: tests/conftest.py marks what asks for a PostgreSQL or a Valkey.
    Suite(
        "unit",
        paths=("tests/unit", "tests/api/test_core.py"),
        ignored_paths=("tests/unit/trainers",),
        # Half of what these tests do is waiting, for processes and timers: these parts keep two cores busy.
        parallel_parts=(
            ("tests/unit/rollout",),
            ("tests/unit/agent", "tests/unit/cli", "tests/unit/rewards"),
        ),
        marker="not database",
    ),
    Suite(
        "database",
        paths=("tests/unit", "tests/api/test_core.py"),
        ignored_paths=("tests/unit/trainers",),
        parallel_parts=(
            ("tests/unit/control_plane/runs",),
            ("tests/unit/control_plane/catalog", "tests/unit/control_plane/operation"),
            ("tests/unit/relay", "tests/unit/telemetry"),
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
        # Whoever waits for an engine leaves a core to these, which start none and so need little memory.
        parallel_parts=(
            (
                "tests/integration/agent",
                "tests/integration/local_stack",
                "tests/integration/operation",
                "tests/integration/relay",
                "tests/integration/stream",
            ),
        ),
    ),
    Suite("trainer-integration", paths=("tests/integration/trainers",), in_node_environment=True),
    # Below two minutes: no change of the sandbox is merged without it.
    Suite("attacks", paths=("tests/sandbox",), marker="core"),
    Suite("e2e", paths=("tests/e2e",), needs_browser=True, needs_dashboard=True),
    Suite("api", paths=("tests/api",), runs_by_default=False),
    Suite("docs", paths=("tests/docs",), runs_by_default=False),
    Suite("faults", paths=("tests/faults",), runs_by_default=False),
    # All of `attacks`, and what takes longer.
    Suite("sandbox", paths=("tests/sandbox",), runs_by_default=False),
    Suite("sim", paths=("tests/unit/rollout", "tests/sim"), runs_by_default=False),
    Suite("gpu", paths=("tests/gpu",), in_node_environment=True, runs_by_default=False),
)

CHECKERS: dict[str, list[str]] = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "mypy control_plane": [
        "mypy",
        "--config-file",
        "platform/control_plane/mypy.ini",
        "platform/control_plane",
    ],
    "import-linter": ["lint-imports"],
    "bandit": ["python", "tests/tools/security_checks.py", "code"],
    "django check --deploy": ["python", "-m", "django", "check", "--deploy", "--fail-level", "WARNING"],
}

# Asks the package index, so it is a suite of its own. Status 77: it could not, and the last line says why.
AUDITS: dict[str, list[str]] = {"pip-audit": ["python", "tests/tools/security_checks.py", "packages"]}
CHECK_UNAVAILABLE = 77
