"""Output and exit status of manage.py's own commands."""

import json
from pathlib import Path

import pytest

from local_stack import commands, environments
from local_stack.environments import READY
from local_stack.paths import Paths, checkout_paths, resolve_paths

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """This checkout's package lists with an empty environments folder."""
    (tmp_path / "constraints").symlink_to(checkout_paths(ROOT).constraints)
    return resolve_paths(
        tmp_path, environ={"OOLONG_HOME": str(tmp_path / "home")}, uid=1000, user_home=tmp_path
    )


def test_node_python_prints_only_the_path(paths, capsys):
    node = environments.node_environment(paths)
    node.python.parent.mkdir(parents=True)
    node.python.write_text("#!/bin/sh\n")
    node.python.chmod(0o755)
    (node.path / READY).write_text(json.dumps({"key": node.key}))
    assert commands.COMMANDS["node-python"](paths, []) == 0
    assert capsys.readouterr().out == f"{node.python}\n"


def test_node_python_without_the_environment_names_the_setup_command(paths, capsys):
    with pytest.raises(commands.StackError, match=r"manage\.py setup --device cuda"):
        commands.COMMANDS["node-python"](paths, ["--device", "cuda"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", sorted(commands.COMMANDS))
def test_every_command_is_in_the_usage(name):
    assert f"\n  {name} " in commands.USAGE


def test_create_token_fails_while_the_stack_is_down(paths, capsys, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    paths.venv_python.parent.mkdir(parents=True)
    paths.venv_python.write_text("")
    assert commands.run_django(paths, ["create_token", "--name", "laptop"]) == 1
    assert "python3 manage.py up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "3"], "'3' is not a number of 20 or more"),
        (["--steps", "many"], "'many' is not a number of 20 or more"),
        (["--stepz", "60"], "unrecognized arguments: --stepz 60"),
        (["--seed", "x"], "--seed: invalid int value: 'x'"),
    ],
)
def test_options_of_the_demo_are_refused_before_a_stack_starts(paths, words, said, capsys, monkeypatch):
    monkeypatch.setattr(commands.stack, "up", lambda *given, **named: pytest.fail("a stack was started"))
    with pytest.raises(SystemExit) as refusal:
        commands.COMMANDS["demo"](paths, words)
    assert refusal.value.code == 2
    assert said in capsys.readouterr().err
