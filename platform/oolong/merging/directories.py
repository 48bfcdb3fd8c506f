"""Merge adapters into a model directory."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from oolong.merging.folders import WEIGHTS_FILE, is_auxiliary, open_directory
from oolong.merging.merge import Adapter, MergedWeights


def merge_directories(model: Path, adapters: Sequence[Path], target: Path) -> None:
    """Write a Hugging Face directory with the adapters merged. Raises MergeError where they do not fit the model."""
    for path in sorted(model.iterdir()):
        if path.is_file() and is_auxiliary(path.name):
            shutil.copyfile(path, target / path.name)
    with ExitStack() as stack:
        weights = MergedWeights(
            open_directory(model, stack), [Adapter.of(open_directory(one, stack)) for one in adapters]
        )
        with (target / WEIGHTS_FILE).open("xb") as file:
            for chunk in weights.chunks():
                file.write(chunk)
