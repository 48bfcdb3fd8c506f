"""`oolong completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

app = typer.Typer()


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="your shell")]) -> None:
    """Print the completion script: `oolong completion bash > ~/.local/share/bash-completion/completions/oolong`."""
    print(get_completion_script(prog_name="oolong", complete_var="_OOLONG_COMPLETE", shell=shell))
