"""The page of the `oolong` command, from the command itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from oolong.cli.app import app
from oolong.cli.exit_codes import ExitCode

INTRODUCTION = """\
# The `oolong` command

Results go to stdout: a table on a terminal, tab-separated lines elsewhere, JSON with `--json`. Everything else
goes to stderr. With `--json` an error is one line of JSON there: `error`, `code`, `exit_code`, and of an answer
of the server `status`, `request_id` and `errors` with a pointer to each field. An upload or download shows a bar on a
terminal, elsewhere a line every five seconds, with `--json` nothing.

Server and token come from `OOLONG_URL` and `OOLONG_TOKEN`, or from a profile that `oolong login` keeps in
`~/.config/oolong/config.toml` (mode 600); `--profile NAME` before the verb, or `OOLONG_PROFILE`, names one. A
kept token is sent to its own server only. `oolong completion bash|zsh|fish` prints the script for your shell.
"""

EXIT_CODES = {
    ExitCode.SUCCEEDED: "done; of `run wait`: the run succeeded and everything asked of it holds",
    ExitCode.UNEXPECTED: "what the command does not know how to name",
    ExitCode.USAGE: "wrong arguments, an invalid spec or dataset, what does not exist or does not allow this now",
    ExitCode.TIMEOUT: "`--timeout` is over; the run continues",
    ExitCode.AUTH: "no token, a wrong one, or one that may not do this",
    ExitCode.FAILED: "the run failed by its own fault (or is paused for one, until somebody has looked)",
    ExitCode.CHECK_FAILED: "the run succeeded, and an assertion or comparison does not hold",
    ExitCode.STOPPED: "the run was stopped or cancelled",
    ExitCode.INFRASTRUCTURE: "nobody's mistake: server, network, node. Safe to try again, and only this one is",
    ExitCode.INTERRUPTED: "Ctrl-C, or SIGTERM with `--cancel-on-interrupt`",
}


def verbs() -> Iterator[tuple[str, Any]]:
    """`run wait` → its command, for every command of the tree."""
    yield from _below(typer.main.get_command(app), "")


def page() -> str:
    lines = [
        *INTRODUCTION.splitlines(),
        "",
        "## Exit codes",
        "",
        "| code | |",
        "| --- | --- |",
        *(f"| {int(code)} | {EXIT_CODES[code]} |" for code in ExitCode),
    ]
    for name, command in verbs():
        lines += ["", f"## oolong {name}", "", *_help(command), *_parameters(command)]
    return "\n".join(lines) + "\n"


def _below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        if not inner.hidden:  # an alias
            yield from _below(inner, f"{path} {name}".strip())


def _help(command: Any) -> list[str]:
    return [line.strip() for line in (command.help or "").strip().splitlines()] + [""]


def _parameters(command: Any) -> list[str]:
    rows = [f"| {_name(found)} | {_text(found)} |" for found in command.params if found.name != "help"]
    return ["| | |", "| --- | --- |", *rows] if rows else ["No arguments."]


def _name(found: Any) -> str:
    if found.param_type_name == "argument":
        return f"`{found.metavar or (found.name or '').upper()}`"
    return ", ".join(f"`{option}`" for option in [*found.opts, *found.secondary_opts])


def _text(found: Any) -> str:
    said = re.sub(r"\s+", " ", getattr(found, "help", None) or "").replace("|", "\\|")
    notes = []
    if found.required:
        notes.append("required")
    elif found.default not in (None, False, "", []) and not callable(found.default):
        shown = found.default.value if hasattr(found.default, "value") else found.default
        notes.append(f"default `{shown}`")
    return " ".join([said, f"({', '.join(notes)})" if notes else ""]).strip()
