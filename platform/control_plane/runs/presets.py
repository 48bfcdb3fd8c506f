"""Starting points for the form and the command line: those that come with Oolong, and those of this installation."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

from oolong.presets import Preset, PresetUnusable, built_in_presets, read_preset

log = logging.getLogger(__name__)


@cache
def _built_in() -> tuple[Preset, ...]:
    return tuple(built_in_presets())


def preset_as_json(preset: Preset) -> dict[str, Any]:
    return {**preset.model_dump(exclude={"order", "sized_for"}), "description": preset.explained}


def presets(data_dir: Path) -> list[Preset]:
    """All presets in their order. A file in `data_dir/presets` replaces a built-in one of the same name.

    Files are read anew each time. One that is no preset is left out, and the log names it with its fault.
    """
    found = {preset.name: preset for preset in _built_in()}
    for file in sorted((data_dir / "presets").glob("*.yaml")):
        try:
            preset = read_preset(file)
        except PresetUnusable as error:
            log.warning("a preset is left out: %s", error)
            continue
        found[preset.name] = preset
    return sorted(found.values(), key=lambda preset: (preset.order, preset.name))
