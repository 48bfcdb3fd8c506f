"""Algorithm presets: the built-in ones and those of this installation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from oolong.presets import Preset, PresetUnusable, built_in_presets, read_preset


@cache
def _built_in() -> tuple[Preset, ...]:
    return tuple(built_in_presets())


@dataclass(frozen=True)
class Presets:
    usable: list[Preset]  # sorted
    errors: dict[str, str]  # name of an invalid file → why


def presets(data_dir: Path) -> Presets:
    """Built-in presets and those in `data_dir/presets`, read at each call.

    A file replaces the built-in preset of the same name, even when the file is invalid: falling back to the built-in
    preset would start runs with a spec that the user did not choose.
    """
    found = {preset.name: preset for preset in _built_in()}
    errors: dict[str, str] = {}
    for file in sorted((data_dir / "presets").glob("*.yaml")):
        try:
            preset = read_preset(file)
        except PresetUnusable as error:
            errors[file.stem] = str(error)
            found.pop(file.stem, None)
            continue
        found[preset.name] = preset
    return Presets(sorted(found.values(), key=lambda preset: (preset.order, preset.name)), errors)
