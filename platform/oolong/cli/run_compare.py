"""`oolong run …`: what was measured, and how two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from oolong.cli.output import JsonOption, show_json, show_table
from oolong.cli.run_output import RunArgument, step_of
from oolong.client import Client
from oolong.client.models import Run

app = typer.Typer()


@app.command()
def metrics(
    run: RunArgument,
    name: Annotated[
        list[str] | None, typer.Argument(metavar="[METRIC]...", help="left out: the names that were measured")
    ] = None,
    json: JsonOption = False,
) -> None:
    """The names of what was measured, or every point of the named metrics."""
    with Client() as client:
        if not name:
            found = client.runs.metric_names(run)
            if json:
                show_json(found)
                return
            show_table(
                ("METRIC", "AXIS", "SOURCES", "LAST X"),
                ((one.name, one.axis, ",".join(one.sources), one.last_x) for one in found),
            )
            return
        answer = client.runs.metrics(run, name)
    if json:
        show_json(answer)
        return
    show_table(
        ("METRIC", "ATTEMPT", "SOURCE", "X", "VALUE"),
        (
            (series.name, series.attempt, series.source, x, value)
            for series in answer.series
            for x, value in zip(series.x, series.value, strict=True)
        ),
    )


@app.command()
def diff(
    run: RunArgument,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="id of the run to compare with")],
    json: JsonOption = False,
) -> None:
    """Where the specs of two runs differ, and how far each came."""
    with Client() as client:
        one, two = client.runs.get(run), client.runs.get(other)
    rows = differences(one.spec, two.spec)
    if json:
        show_json({"spec": {field: list(values) for field, values in rows.items()}})
        return
    show_table(
        ("FIELD", one.id, two.id),
        [*((field, *values) for field, values in rows.items()), *_outcomes(one, two)],
    )


def differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Fields with other values, by dotted path; None where one of them has no such field."""
    first, second = dict(_leaves(one)), dict(_leaves(two))
    return {
        path: (first.get(path), second.get(path))
        for path in sorted(first.keys() | second.keys())
        if first.get(path) != second.get(path)
    }


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _outcomes(one: Run, two: Run) -> list[tuple[object, ...]]:
    return [
        ("(status)", one.status, two.status),
        ("(train step)", step_of(one), step_of(two)),
        ("(reward)", one.reward_mean, two.reward_mean),
        ("(staleness)", one.staleness_mean, two.staleness_mean),
    ]
