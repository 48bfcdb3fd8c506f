"""`--dataset` and `--set`: what the command line changes in a spec before it is submitted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oolong.yaml_files import YamlFault, load_yaml

DatasetOption = Annotated[
    str | None,
    typer.Option(help="dataset version of the run, an id or name@3; replaces dataset.version of the spec"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="a field of the spec, e.g. staleness.max=8; null is its default; repeatable"),
]


def change_spec(spec: dict[str, Any], *, dataset: str | None, changes: list[str] | None) -> None:
    """Put the options into the document. Raises BadParameter naming the key that does not fit."""
    for key, value in _read(changes or []):
        _put(spec, key, value, option="--set")
    if dataset is not None:
        _put(spec, "dataset.version", dataset, option="--dataset")


def read_changes(texts: list[str]) -> dict[str, Any]:
    """`a.b=1` as `{"a": {"b": 1}}`; values are YAML. Raises BadParameter naming the text."""
    changes: dict[str, Any] = {}
    for key, value in _read(texts):
        _put(changes, key, value, option="--set", keep_null=True)
    return changes


def _read(texts: list[str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            raise typer.BadParameter(
                f"{text!r} is not FIELD=VALUE, such as staleness.max=8", param_hint="--set"
            )
        try:
            found.append((key, load_yaml(value)))
        except YamlFault as error:
            raise typer.BadParameter(
                f"{key}: {value!r} is not a YAML value: {error}", param_hint="--set"
            ) from error
    return found


def _put(document: dict[str, Any], key: str, value: Any, *, option: str, keep_null: bool = False) -> None:
    *sections, field = key.split(".")
    place = document
    for depth, section in enumerate(sections, start=1):
        inner = place.setdefault(section, {})
        if inner is None:
            inner = place[section] = {}
        if not isinstance(inner, dict):
            raise typer.BadParameter(
                f"{key}: {'.'.join(sections[:depth])} is {inner!r}, which has no field {key.split('.')[depth]!r}",
                param_hint=option,
            )
        place = inner
    if value is None and not keep_null:
        place.pop(field, None)
    else:
        place[field] = value
