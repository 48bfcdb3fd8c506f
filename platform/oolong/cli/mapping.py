"""The options that say which column is what, spelled once for every command that takes a mapping."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

OPTIONS: dict[str, tuple[Any, Any]] = {
    "prompt_column": (Annotated[str, typer.Option(help="column that holds the prompt")], "prompt"),
    "answer_column": (
        Annotated[
            str | None,
            typer.Option(help="column that the reward compares with; default answer, none with a pair"),
        ],
        None,
    ),
    "completion_column": (Annotated[str | None, typer.Option(help="demonstrations, for sft")], None),
    "chosen_column": (Annotated[str | None, typer.Option(help="better completions of pairs, for dpo")], None),
    "rejected_column": (
        Annotated[str | None, typer.Option(help="worse completions of pairs, for dpo")],
        None,
    ),
    "split_column": (Annotated[str | None, typer.Option(help="column that names the row's split")], None),
    "source_column": (
        Annotated[str | None, typer.Option(help="column that names the row's source, for dataset.weights")],
        None,
    ),
    "default_split": (Annotated[str, typer.Option(help="split of rows without one")], "train"),
    "template": (
        Annotated[
            str,
            typer.Option(help="prompt text: {prompt} is the prompt column, {name} another one, {{ a brace"),
        ],
        "{prompt}",
    ),
    "system": (Annotated[str, typer.Option(help="system message")], ""),
}


def with_mapping(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options above instead of its parameter `mapping`, a document for the API."""

    @functools.wraps(command)
    def called(**arguments: Any) -> None:
        chosen = {name: arguments.pop(name) for name in OPTIONS}
        if chosen["answer_column"] is None and chosen["chosen_column"] is None:
            chosen["answer_column"] = "answer"
        command(**arguments, mapping={name: value for name, value in chosen.items() if value is not None})

    signature = inspect.signature(command, eval_str=True)
    kept = [parameter for parameter in signature.parameters.values() if parameter.name != "mapping"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in OPTIONS.items()
    ]
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in kept]
    called.__signature__ = signature.replace(parameters=[*keyword_only, *added])  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*keyword_only, *added)}
    return called
