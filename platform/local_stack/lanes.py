"""What the lanes of the suite are: their tests, the environment they run in, what they need before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lane:
    """A part of the suite: pytest in one of the environments, the checkers (`static`) or Node's tests (`web`)."""

    name: str
    paths: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()  # of the paths: each run by a pytest of its own, beside the rest
    marked: str = ""  # which tests of the paths, as pytest's -m takes it; "": all
    in_node_environment: bool = False
    part_of_the_suite: bool = True
    needs_browser: bool = False
    needs_dashboard: bool = False
    fetches_ahead: bool = (
        False  # what later lanes of the run need from the network comes while this one computes
    )
    # Both only end what hangs: half the speed, and ten times the load, must not reach them.
    limit_seconds: int = 7200
    test_limit_seconds: int = 600  # of one test that names no limit of its own


NOTHING_COLLECTED = 5  # what pytest ends with when no test fits

LANES = (
    Lane("static"),
    # The unit tests are two lanes: tests/conftest.py marks what asks for a PostgreSQL or a Valkey.
    Lane(
        "unit",
        paths=("tests/unit", "tests/api/test_core.py"),
        ignored=("tests/unit/trainers",),
        # Half of what these tests do is waiting, for processes and timers: these parts keep two cores busy.
        beside=(
            ("tests/unit/rollout",),
            ("tests/unit/agent", "tests/unit/cli", "tests/unit/rewards"),
        ),
        marked="not database",
    ),
    Lane(
        "database",
        paths=("tests/unit", "tests/api/test_core.py"),
        ignored=("tests/unit/trainers",),
        beside=(
            ("tests/unit/control_plane/runs",),
            ("tests/unit/control_plane/catalog", "tests/unit/control_plane/operation"),
            ("tests/unit/relay", "tests/unit/telemetry"),
        ),
        marked="database",
        fetches_ahead=True,
    ),
    Lane("audit", part_of_the_suite=False),
    Lane("web", needs_dashboard=True),
    Lane("trainer", paths=("tests/unit/trainers",), in_node_environment=True),
    Lane(
        "integration",
        paths=("tests/integration",),
        ignored=("tests/integration/trainers",),
        # Whoever waits for an engine leaves a core to these, which start none and so need little memory.
        beside=(
            (
                "tests/integration/agent",
                "tests/integration/local_stack",
                "tests/integration/operation",
                "tests/integration/relay",
                "tests/integration/stream",
            ),
        ),
    ),
    Lane("trainer-integration", paths=("tests/integration/trainers",), in_node_environment=True),
    # Below two minutes: no change of the sandbox is merged without it.
    Lane("attacks", paths=("tests/sandbox",), marked="core"),
    Lane("e2e", paths=("tests/e2e",), needs_browser=True, needs_dashboard=True),
    Lane("api", paths=("tests/api",), part_of_the_suite=False),
    Lane("docs", paths=("tests/docs",), part_of_the_suite=False),
    Lane("faults", paths=("tests/faults",), part_of_the_suite=False),
    # All of `attacks`, and what takes longer.
    Lane("sandbox", paths=("tests/sandbox",), part_of_the_suite=False),
    Lane("sim", paths=("tests/unit/rollout", "tests/sim"), part_of_the_suite=False),
    Lane("gpu", paths=("tests/gpu",), in_node_environment=True, part_of_the_suite=False),
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

# Asks the package index, so it is a lane of its own. Status 77: it could not, and the last line says why.
AUDITS: dict[str, list[str]] = {"pip-audit": ["python", "tests/tools/security_checks.py", "packages"]}
NOT_MADE = 77
