from __future__ import annotations

import re
from pathlib import Path

import pytest

from oolong.contracts.run_spec import RunSpec
from oolong.contracts.run_spec.lint import lint
from oolong.presets import FOLDER, PresetUnusable, built_in_presets, completed, read_preset


@pytest.mark.parametrize("preset", built_in_presets(), ids=lambda preset: preset.name)
def test_a_preset_is_sound_once_model_and_dataset_are_filled_in(preset: object) -> None:
    spec = RunSpec.model_validate(completed(preset.spec))  # type: ignore[attr-defined]
    assert spec.kind in ("rl", "sft")
    assert lint(spec) == [], "a starting point that Oolong itself finds odd"


def test_files_are_named_as_their_presets_and_lines_break_before_they_are_too_long() -> None:
    for file in FOLDER.glob("*.yaml"):
        assert read_preset(file).name == file.stem
        assert max(len(line) for line in file.read_text().splitlines()) <= 120, file


def test_the_page_on_the_objective_names_every_preset() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "concepts" / "objective.md").read_text()
    table = page.split("## Presets")[1].split("##")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", table.partition("| --- |")[2])) >= {
        preset.name for preset in built_in_presets()
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "cannot be read as YAML"),
        ("- 1\n", "valid dictionary"),
        ("name: x\ntitle: X\n", "spec: Field required"),
        ("name: x\ntitle: X\nspecs: {}\nspec: {}\n", "specs: Extra inputs"),
        ("name: X y\ntitle: X\nspec: {}\n", "name: String should match"),
        ("name: x\ntitle: X\nspec: {algorithm: {clip_low: 0}}\n", "spec/algorithm/clip_low: "),
    ],
)
def test_a_file_that_is_no_preset_is_told_with_its_fault(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(PresetUnusable, match=said) as caught:
        read_preset(file)
    assert "x.yaml" in str(caught.value)
