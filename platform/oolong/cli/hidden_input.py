"""Passwords and tokens that a user enters."""

from __future__ import annotations

import sys

import typer
from typer.exceptions import TyperException


def read_hidden(what: str, *, confirm: bool = False) -> str:
    """Ask on a terminal without echo; without a terminal, read a line of standard input and print nothing."""
    if sys.stdin.isatty():
        answer: str = typer.prompt(
            what[0].upper() + what[1:], hide_input=True, confirmation_prompt=confirm, err=True
        )
        return answer
    line = sys.stdin.readline().strip("\r\n")
    if not line:
        raise TyperException(
            f"there is no terminal to ask for the {what} on, and standard input is empty; "
            "write it to standard input as one line"
        )
    return line
