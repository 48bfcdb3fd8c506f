"""Filters of the run list as the command line takes them: `--filter 'metric=reward/mean>=0.5'`, repeatable."""

from __future__ import annotations

from typing import Annotated

import typer

FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="NAME=VALUE: text, author, model, dataset, function, parent, sweep, metric, created_after, "
        "created_before, sort and the others; repeatable. 'metric=reward/mean>=0.5', sort=-reward",
    ),
]


def read_filters(texts: list[str]) -> dict[str, list[str]]:
    """Raises BadParameter for a text that is not NAME=VALUE."""
    filters: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(
                f"{text!r} is not NAME=VALUE, such as author=alice", param_hint="--filter"
            )
        filters.setdefault(name, []).append(value)
    return filters
