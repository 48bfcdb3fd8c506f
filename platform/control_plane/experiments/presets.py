"""Starting points for the form and the command line: those that come with Oolong, and those of this installation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from oolong.presets import Preset, PresetUnusable, built_in_presets, read_preset


@cache
def _built_in() -> tuple[Preset, ...]:
    return tuple(built_in_presets())


def preset_as_json(preset: Preset) -> dict[str, Any]:
    return {**preset.model_dump(exclude={"order", "sized_for"}), "description": preset.explained, "fault": ""}


@dataclass(frozen=True)
class Presets:
    usable: list[Preset]  # in their order
    faults: dict[str, str]  # by the name of a file that cannot be used: why


def presets(data_dir: Path) -> Presets:
    """Built-in presets and those of `data_dir/presets`, read again each time.

    A file replaces the built-in preset that it is named after or that has its name, also when it cannot be used:
    what stands in for a broken file would be a spec that nobody asked for.
    """
    found = {preset.name: preset for preset in _built_in()}
    faults: dict[str, str] = {}
    for file in sorted((data_dir / "presets").glob("*.yaml")):
        try:
            preset = read_preset(file)
        except PresetUnusable as error:
            faults[file.stem] = str(error)
            found.pop(file.stem, None)
            continue
        found[preset.name] = preset
    return Presets(sorted(found.values(), key=lambda preset: (preset.order, preset.name)), faults)
