"""Presets: starting points for a run, one YAML file each.

name, title, description, paper (a link, or empty), order (in lists), and a spec that lacks only its model and
dataset. A preset of your own is such a file in the folder `presets` of the control plane's data directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oolong.contracts.run_spec import spec_errors

FOLDER = Path(__file__).parent


class PresetUnusable(Exception):
    """A preset file is not a preset; the message names the file and the fault."""


class Preset(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,60}$")
    title: str = Field(min_length=1)
    description: str = ""
    paper: str = ""  # link to where the numbers come from
    order: int = 1000
    spec: dict[str, Any]


def built_in_presets() -> list[Preset]:
    return read_presets(FOLDER)


def read_presets(folder: Path) -> list[Preset]:
    """The presets of a folder in their order. Raises PresetUnusable for the first file that is none."""
    found = [read_preset(file) for file in sorted(folder.glob("*.yaml"))]
    return sorted(found, key=lambda preset: (preset.order, preset.name))


def read_preset(file: Path) -> Preset:
    try:
        preset = Preset.model_validate(yaml.safe_load(file.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PresetUnusable(f"{file} cannot be read as YAML: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise PresetUnusable(f"{file}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error
    faults = spec_errors(completed(preset.spec))
    if faults:
        raise PresetUnusable(f"{file}: spec{faults[0].pointer}: {faults[0].message}")
    return preset


def completed(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with something in place of the model and dataset that a preset leaves open."""
    return {
        "name": "preset",
        **spec,
        "model": {"base_model": "any"},
        "dataset": {**spec.get("dataset", {}), "version": "any@1"},
    }
