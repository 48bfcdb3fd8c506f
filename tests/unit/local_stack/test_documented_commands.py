"""What the pages tell the reader to type exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

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


# Up to a comment, the end of a substitution, another program, or what the reader is to fill in.
WORDS = r"""((?=[a-z])(?:'[^']*'|"[^"]*"|[^'"#|)&>…])*)"""
OOLONG = typer.main.get_command(app)


def shown(text: str) -> list[str]:
    """What follows `oolong` where a page shows it as typed: lines of shell blocks, and words set as code."""
    joined = text.replace("\\\n", " ")
    lines = [
        line
        for language, block in re.findall(r"^ *```(\w*)[^\n]*\n(.*?)```", joined, re.DOTALL | re.MULTILINE)
        if language in ("", "sh", "bash")
        for line in block.splitlines()
    ]
    prose = re.sub(r"```.*?```", "", joined, flags=re.DOTALL)
    found = [re.search(rf"(?:^|[\s(]|bin/)oolong {WORDS}", one) for one in lines]
    found += [re.match(rf"(?:\.venv/bin/)?oolong {WORDS}", one) for one in re.findall(r"`([^`]+)`", prose)]
    return [match[1].strip() for match in found if match]


TYPED = sorted({one for page in (*PAGES, *ROOT.glob("docs/**/*.md")) for one in shown(page.read_text())})


@pytest.mark.parametrize("words", TYPED)
def test_a_command_of_oolong_exists_and_takes_what_it_is_given(words: str) -> None:
    """Its options exist; where a page gives it arguments, they are as many as it takes, and nothing required lacks."""
    command, rest = OOLONG, shlex.split(words)
    while hasattr(command, "commands"):
        if not rest:
            return  # a group of commands is named
        assert rest[0] in command.commands, f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    known = [one for one in command.params if one.param_type_name == "option"]
    options = {name: one for one in known for name in (*one.opts, *one.secondary_opts)}
    given, arguments = set[str](), []
    words_left = iter(rest)
    for word in words_left:
        if not word.startswith("-") or word == "-":
            arguments.append(word)
            continue
        assert word in options, f"no option {word}"
        given |= {*options[word].opts}
        if not options[word].is_flag:
            next(words_left, None)
    takes = [one for one in command.params if one.param_type_name == "argument"]
    assert any(one.nargs == -1 for one in takes) or len(arguments) <= len(takes), f"takes no {arguments[-1]}"
    if arguments:
        assert len(arguments) >= sum(one.required for one in takes), "an argument is missing"
        missing = [one.opts for one in known if one.required]
        assert not [names for names in missing if not given & {*names}], f"an option is missing: {missing}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("`oolong run crate -f a.yaml`", "no command crate"),
        ("```sh\noolong run list --fliter a\n```", "no option --fliter"),
        ("```sh\nRUN=$(.venv/bin/oolong run create agents.yaml)\n```", "takes no agents.yaml"),
        ("```sh\nprintf %s a | oolong secret set A \\\n    --hots b\n```", "no option --hots"),
    ],
)
def test_a_wrong_command_of_a_page_is_found(text: str, said: str) -> None:
    [words] = shown(text)
    with pytest.raises(AssertionError, match=said):
        test_a_command_of_oolong_exists_and_takes_what_it_is_given(words)


def test_the_pages_name_commands_at_all() -> None:
    assert len(typed(r"manage\.py ([a-z][\w-]*)")) > 4 and len(typed(r"`make ([a-z][\w-]*)")) > 5
    assert len(TYPED) > 100
