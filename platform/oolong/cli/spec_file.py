"""A spec as people write it: a YAML or JSON file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from oolong.yaml_files import YamlFault, load_yaml

TemplateOption = Annotated[
    str | None,
    typer.Option(help="name@2, or name: a template or preset that the spec is merged over"),
]


def read_spec(file: Path) -> dict[str, Any]:
    """The document of a spec file. Raises BadParameter naming the file and the place."""
    try:
        document = load_yaml(sys.stdin.read() if str(file) == "-" else file.read_text())
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8: {error.reason}", param_hint="--file") from error
    except YamlFault as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--file") from error
    if not isinstance(document, dict):
        raise typer.BadParameter(
            f"{file} must hold a mapping (kind, name, model, dataset, ...)", param_hint="--file"
        )
    return document
