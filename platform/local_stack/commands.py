"""Oolong's own commands of manage.py; all others are Django's."""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from local_stack import (
    configuration,
    dashboard,
    environments,
    init,
    preflight,
    screenshots,
    selftest,
    stack,
    sync_client,
)
from local_stack.demo_options import add_options
from local_stack.errors import StackError
from local_stack.paths import Paths, checkout_paths
from oolong.variables import report_unknown

USAGE = """\
usage: python3 manage.py COMMAND [OPTIONS]

  demo          set up, start and run the demo end to end; then serve until Ctrl-C (--exit: stop)
  up            set up if needed, build the dashboard, start all services, print a login link
  down          stop all services and jobs of this clone; keep its data
  ps            list the processes of this clone
  url           print the URL of the running stack
  login-link    print a new single-use login link
  selftest      set up and run the test suite (--lanes a,b: only these suites, such as faults)
  bench         run the benchmarks, write docs/benchmarks (--only KEY,KEY, --list)
  webui         build the dashboard
  screenshots   take the README screenshot from the last demo run
  preflight     check this machine, list what is missing
  setup         create the Python environments only
  node-python   print the path of the node environment's Python, to start an agent manually
  init          set up a production installation: settings, secrets, tables, first user (--help)
  backup DIR    back up rows and blobs of a running installation
  restore DIR   restore a backup into an empty installation
  verify        check that all blobs exist and are intact (--backup DIR: in a backup)
  doctor        diagnose problems and suggest fixes; --out FILE: bundle without secrets
  clean         list and delete this clone's data after confirmation (--yes, --all)

Any other command is Django's, run in .venv against the services of this clone (run `up` first).
Environment: DEVICE=cpu|cuda, OOLONG_HOME, OOLONG_SLOTS, OOLONG_SLOTS_PER_GPU, OOLONG_WEB_PORT, OOLONG_WEB_PROCESSES,
OOLONG_WORKER_PROCESSES, DATABASE_URL, REDIS_URL.
"""


def main(root: str, arguments: list[str]) -> int:
    """Run one command. Exit status: 0 success, 1 failure, 2 wrong usage."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    paths = checkout_paths(Path(root))
    if not arguments or (arguments[0] in ("help", "-h", "--help") and len(arguments) == 1):
        print(USAGE, end="")
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    command = COMMANDS.get(name)
    if command is None:
        return run_django(paths, arguments)
    report_unknown(os.environ, lambda line: print(f"warning: {line}", file=sys.stderr))
    _stop_on_signals()
    try:
        return command(paths, rest)
    except StackError as error:
        print(f"\n{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except PermissionError as error:
        print(
            f"\n{name}: {error}\nA file belongs to another user. Did root use this checkout before?",
            file=sys.stderr,
        )
        return 1


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"manage.py {name}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=os.environ.get("DEVICE") or "cpu")
    return parser


def _preflight(paths: Paths, rest: list[str]) -> int:
    options = _parser("preflight").parse_args(rest)
    ready = environments.node_environment(paths, device=options.device).is_ready()
    preflight.check(paths, device=options.device, environments_ready=ready, echo=print)
    print("This machine meets the requirements.")
    return 0


def _setup(paths: Paths, rest: list[str]) -> int:
    stack.set_up(paths, device=_parser("setup").parse_args(rest).device, echo=print)
    print("Setup complete. Next: python3 manage.py up, or python3 manage.py demo")
    return 0


def _up(paths: Paths, rest: list[str]) -> int:
    options = _parser("up").parse_args(rest)
    began = time.monotonic()
    started = stack.up(paths, device=options.device, echo=print)
    state = "Already running" if started.was_running else f"Up after {time.monotonic() - began:.0f} s"
    print(f"{state}. Stop it with: python3 manage.py down")
    _print_access(paths, started.url)
    return 0


def _print_access(paths: Paths, url: str) -> None:
    print(f"\n  Dashboard:            {url}")
    print(f"  Single-use login:     {stack.login_link(paths)}")
    line = stack.ssh_forward_command(url, dict(os.environ), user=getpass.getuser(), host=socket.gethostname())
    if line:
        print(f"  From your machine:    {line}")
    print()


def _down(paths: Paths, rest: list[str]) -> int:
    _parser("down").parse_args(rest)
    stack.down(paths, echo=print)
    return 0


def _ps(paths: Paths, rest: list[str]) -> int:
    _parser("ps").parse_args(rest)
    rows = [("NAME", "STATE", "PID", "ADDRESS", ""), *stack.process_rows(paths)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    chosen = configuration.read_configuration(paths)
    if chosen and stack.is_running(paths):
        print(f"\n{chosen.url}")
    return 0


def _clean(paths: Paths, rest: list[str]) -> int:
    parser = _parser("clean")
    parser.add_argument("--yes", action="store_true", help="delete without confirmation")
    parser.add_argument("--all", action="store_true", help="also delete the environments")
    options = parser.parse_args(rest)

    def confirmed(question: str) -> bool:
        if options.yes:
            return True
        if not sys.stdin.isatty():
            print(question + " There is no terminal for the question: pass --yes.")
            return False
        return input(question + " [y/N] ").strip().lower() in ("y", "yes")

    done = stack.clean(paths, everything=options.all, confirmed=confirmed, echo=print)
    return 0 if done else 1


def _url(paths: Paths, rest: list[str]) -> int:
    """Print only the URL, for use in `$(…)`. Raises StackError if the stack is not running."""
    _parser("url").parse_args(rest)
    chosen = configuration.read_configuration(paths)
    if chosen is None or not stack.is_running(paths):
        raise StackError("the stack is not running: python3 manage.py up")
    print(chosen.url)
    return 0


def _login_link(paths: Paths, rest: list[str]) -> int:
    _parser("login-link").parse_args(rest)
    print(stack.login_link(paths))
    return 0


def _node_python(paths: Paths, rest: list[str]) -> int:
    """Print only the path, for use in `$(…)`. Raises StackError if the environment does not exist."""
    device = _parser("node-python").parse_args(rest).device
    node = environments.node_environment(paths, device=device)
    if not node.is_ready():
        raise StackError(f"{node.path} is missing or outdated: python3 manage.py setup --device {device}")
    print(node.python)
    return 0


def _demo(paths: Paths, rest: list[str]) -> int:
    """Run the demo. On a terminal, serve until Ctrl-C; else stop the stack if this command started it."""
    parser = _parser("demo")
    parser.add_argument("--exit", action="store_true", help="stop everything at the end, also on a terminal")
    add_options(parser)
    options = parser.parse_args(rest)
    for_demo = ["--steps", str(options.steps), "--seed", str(options.seed)]
    stays = sys.stdin.isatty() and sys.stdout.isatty() and not options.exit
    began = time.time()
    was_running = stack.is_running(paths)
    try:
        started = stack.up(paths, device=options.device, echo=print)
        _print_access(paths, started.url)
        code = _run_demo(paths, options.device, began, for_demo)
        if stays:
            print(f"\nStill serving at {started.url}. Press Ctrl-C to stop.")
            while stack.is_running(paths):
                time.sleep(0.5)
        return code
    except KeyboardInterrupt:
        print("\nStopping …")
        if stays and "code" in locals():
            return code
        return 130
    finally:
        if not was_running:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            stack.down(paths, echo=print)


def _stop_on_signals() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that finally clauses run."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def _run_demo(paths: Paths, device: str, began: float, more: list[str]) -> int:
    variables = configuration.read_env_file(paths)
    environment = {
        **configuration.child_environment(paths, variables),
        "OOLONG_DEMO_BEGAN": str(began),
        "DEVICE": device,
    }
    if "TERM" in os.environ:
        environment["TERM"] = os.environ["TERM"]
    words = [str(paths.venv_python), "-m", "local_stack.demo", *more]
    process = subprocess.Popen(words, env=environment, cwd=paths.root)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _selftest(paths: Paths, rest: list[str]) -> int:
    parser = _parser("selftest")
    parser.add_argument(
        "--lanes", default="", help="test suites, comma-separated; default: all that run by default"
    )
    parser.add_argument("--no-setup", action="store_true", help="skip setup; the environments must exist")
    options, for_pytest = parser.parse_known_args(rest)
    if not options.no_setup:
        stack.set_up(paths, device=options.device, echo=print, quiet_preflight=True)
    sync_client.ensure(paths)
    names = [name for name in options.lanes.split(",") if name]
    return selftest.run_suites(paths, names=names, device=options.device, pytest_args=for_pytest)


def _bench(paths: Paths, rest: list[str]) -> int:
    """Run tests/bench with the given arguments."""
    stack.set_up(paths, device="cpu", echo=print, quiet_preflight=True)
    environment = configuration.child_environment(paths, {})
    environment["OOLONG_NODE_PYTHON"] = str(environments.node_environment(paths).python)
    process = subprocess.Popen(
        [str(paths.venv_python), "-m", "tests.bench", *rest], env=environment, cwd=paths.root
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def _webui(paths: Paths, rest: list[str]) -> int:
    _parser("webui").parse_args(rest)
    return 0 if dashboard.build_if_needed(paths, echo=print) else 1


def _screenshots(paths: Paths, rest: list[str]) -> int:
    options = _parser("screenshots").parse_args(rest)
    was_running = stack.is_running(paths)
    try:
        started = stack.up(paths, device=options.device, echo=print)
        print(
            *screenshots.take_screenshots(paths, url=started.url, login_link=stack.login_link(paths)),
            sep="\n",
        )
    finally:
        if not was_running:
            stack.down(paths, echo=print)
    return 0


# Django commands that users run: without a database they would wait and end in a traceback.
NEED_DATABASE = frozenset(
    {"create_token", "login_link", "join_token", "pool", "dbshell", "backup", "restore", "verify"}
)


# The caller's environment overrides var/stack.env for these variables.
CALLER_SETTINGS = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "STORAGE_URL", "ALLOWED_HOSTS")


def run_django(paths: Paths, arguments: list[str]) -> int:
    """Replace this process by Django's command line in the environment of this clone's stack."""
    if not paths.venv_python.exists():
        print(
            f"`{arguments[0]}` is a Django command and needs .venv: run python3 manage.py setup",
            file=sys.stderr,
        )
        return 1
    chosen = configuration.read_configuration(paths)
    production = os.environ.get("OOLONG_ENV") == "production"  # then the environment has all settings
    embedded = (
        not production and "DATABASE_URL" not in os.environ and (chosen is None or chosen.embedded_postgres)
    )
    if arguments[0] in NEED_DATABASE and embedded and not stack.is_running(paths):
        print(
            f"{arguments[0]}: the stack of this clone is not running. Start it: python3 manage.py up",
            file=sys.stderr,
        )
        return 1
    variables = {} if production else configuration.read_env_file(paths)
    variables |= {name: os.environ[name] for name in CALLER_SETTINGS if name in os.environ}
    environment = {**os.environ, **configuration.child_environment(paths, variables)}
    environment.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    python = str(paths.venv_python)
    return os.execve(python, [python, "-m", "django", *arguments], environment)


Command = Callable[[Paths, list[str]], int]
COMMANDS: dict[str, Command] = {
    "demo": _demo,
    "up": _up,
    "down": _down,
    "ps": _ps,
    "login-link": _login_link,
    "url": _url,
    "node-python": _node_python,
    "selftest": _selftest,
    "bench": _bench,
    "webui": _webui,
    "screenshots": _screenshots,
    "preflight": _preflight,
    "setup": _setup,
    "clean": _clean,
    "init": init.main,
}
