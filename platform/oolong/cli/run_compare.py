"""`oolong run diff`: how two runs differ."""

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
def diff(
    run: RunArgument,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="id of the run to compare with")],
    json: JsonOption = False,
) -> None:
    """Where the specs of two runs differ, and how far each came."""
    with Client() as client:
        one, two = client.runs.get(run), client.runs.get(other)
    if json:
        exact = differences(one.spec, two.spec)
        show_json({"spec": {field: list(values) for field, values in exact.items()}})
        return
    rows = differences(_with_names(one), _with_names(two))
    show_table(
        ("FIELD", one.id, two.id),
        [*((field, *values) for field, values in rows.items()), *_outcomes(one, two)],
    )


def _with_names(run: Run) -> dict[str, Any]:
    """The spec with what people call its model and dataset in place of their ids."""
    names = {run.dataset.id: run.dataset.ref, run.model.id: run.model.name}
    places = {"model": ("base_model", "checkpoint"), "dataset": ("version",), "evaluation": ("dataset",)}
    spec = dict(run.spec)
    for section, fields in places.items():
        if isinstance(spec.get(section), Mapping):
            named = {
                field: names.get(spec[section].get(field)) or spec[section].get(field) for field in fields
            }
            spec[section] = {**spec[section], **named}
    return spec


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
