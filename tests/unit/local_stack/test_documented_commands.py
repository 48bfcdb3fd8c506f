"""What README and guide tell the reader to type exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import typer.main

from local_stack.commands import COMMANDS
from oolong.cli.app import app

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "docs/guide.md", *ROOT.glob("docs/how-to/*.md")]
TEXT = "".join(page.read_text() for page in PAGES)
DJANGO_COMMANDS = {path.stem for path in ROOT.glob("platform/control_plane/*/management/commands/*.py")} | {
    "migrate"  # Django's own
}


def typed(pattern: str) -> list[str]:
    return sorted(set(re.findall(pattern, TEXT)))


@pytest.mark.parametrize("name", typed(r"manage\.py ([a-z][\w-]*)"))
def test_a_command_of_manage_py_exists(name: str) -> None:
    assert name in COMMANDS or name in DJANGO_COMMANDS


@pytest.mark.parametrize("target", typed(r"(?:`|^)make ([a-z][\w-]*)"))
def test_a_target_of_make_exists(target: str) -> None:
    rules = re.findall(r"^([a-z][\w -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target in {word for rule in rules for word in rule.split()}


@pytest.mark.parametrize("words", typed(r"(?:`|bin/|\()oolong ([a-z-]+(?: [a-z-]+)?)"))
def test_a_command_of_oolong_exists(words: str) -> None:
    command: click.Command = typer.main.get_command(app)
    for word in words.split():
        if not isinstance(command, click.Group):
            return  # an argument of its own
        assert word in command.commands, words
        command = command.commands[word]


def test_the_pages_name_commands_at_all() -> None:
    assert len(typed(r"manage\.py ([a-z][\w-]*)")) > 4 and len(typed(r"`make ([a-z][\w-]*)")) > 5
