"""Presets: starting points for a run, one YAML file each.

name, title, description, paper (a link, or empty), order (in lists), sized_for (the model and the GPUs that its sizes
are for), and a spec that lacks only its model and dataset. A preset of your own is such a file in the folder `presets`
of the control plane's data directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oolong.contracts.model_faults import SpecError, faults_of
from oolong.contracts.run_spec import spec_errors
from oolong.contracts.run_spec.spec import TRAINER_ONLY_KINDS
from oolong.yaml_files import YamlFault, load_yaml

FOLDER = Path(__file__).parent


class PresetUnusable(Exception):
    """A preset file is not a preset; the message names the file and the fault."""


class SizedFor(BaseModel):
    """A test holds each built-in preset to it: the run fits these GPUs, by the lint's reckoning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: int = Field(gt=0)
    gpus: int = Field(gt=0)
    gpu_memory_gb: int = Field(gt=0)


class Preset(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,60}$")
    title: str = Field(min_length=1)
    description: str = ""
    paper: str = ""  # link to where the numbers come from
    order: int = 1000
    sized_for: SizedFor | None = None
    spec: dict[str, Any]

    @property
    def explained(self) -> str:
        """The description, with what it still needs and what it is sized for."""
        parts = [self.description.strip(), *self._needs(), *self._sizes()]
        return " ".join(part for part in parts if part)

    def _needs(self) -> list[str]:
        named = {
            "base model": ("model", "base_model"),
            "checkpoint": ("model", "checkpoint"),
            "dataset": ("dataset", "version"),
        }
        absent = [
            f"a {what}"
            for what, (section, field) in named.items()
            if (self.spec.get(section) or {}).get(field) == ""
        ]
        return [f"Starts when you name {' and '.join(absent)}."] if absent else []

    def _sizes(self) -> list[str]:
        if self.sized_for is None:
            return []
        trainer, rollout = self.spec.get("trainer") or {}, self.spec.get("rollout") or {}
        ranks, engines = trainer.get("num_ranks", 1), rollout.get("engines", 1)
        size = f"{self.sized_for.parameters / 1e9:.2g}"
        only_trains = self.spec.get("kind") in TRAINER_ONLY_KINDS
        split = "" if only_trains else f": {ranks} for the trainer, {engines} for engines"
        gpus = "one GPU" if self.sized_for.gpus == 1 else f"{self.sized_for.gpus} GPUs"
        return [
            f"Sized for a model of {size} billion parameters on {gpus} of {self.sized_for.gpu_memory_gb} GB{split}."
        ]


def built_in_presets() -> list[Preset]:
    return read_presets(FOLDER)


def read_presets(folder: Path) -> list[Preset]:
    """Presets of a directory in order. Raises PresetUnusable for the first invalid file."""
    found = [read_preset(file) for file in sorted(folder.glob("*.yaml"))]
    return sorted(found, key=lambda preset: (preset.order, preset.name))


def read_preset(file: Path) -> Preset:
    try:
        preset = Preset.model_validate(load_yaml(file.read_text()))
    except (OSError, UnicodeDecodeError, YamlFault) as error:
        raise PresetUnusable(f"{file}: {error}") from error
    except ValidationError as error:
        raise PresetUnusable(f"{file}: {_said(faults_of(error, Preset))}") from error
    faults = spec_errors(completed(preset.spec))
    if faults:
        raise PresetUnusable(f"{file}: {_said(faults, prefix='/spec')}")
    return preset


def _said(faults: list[SpecError], *, prefix: str = "") -> str:
    return "; ".join(f"{prefix}{fault.pointer or '/'}: {fault.message}" for fault in faults)


def completed(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with something in place of the model and dataset that a preset leaves open."""
    dataset, model = spec.get("dataset", {}), spec.get("model", {})
    other = {key: model[key] for key in model if key != "checkpoint"} if isinstance(model, dict) else {}
    return {
        "name": "preset",
        **spec,
        "model": {**other, "base_model": "any"},
        "dataset": {**dataset, "version": "any@1"} if isinstance(dataset, dict) else dataset,
    }
