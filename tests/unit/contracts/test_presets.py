from __future__ import annotations

import re
from pathlib import Path

import pytest

from oolong.contracts.run_spec import Facts, RunSpec
from oolong.contracts.run_spec.lint import lint
from oolong.contracts.run_spec.memory import kv_bytes_per_token, shape_of
from oolong.presets import FOLDER, Preset, PresetUnusable, built_in_presets, completed, read_preset


@pytest.mark.parametrize("preset", built_in_presets(), ids=lambda preset: preset.name)
def test_a_preset_is_sound_once_model_and_dataset_are_filled_in(preset: object) -> None:
    spec = RunSpec.model_validate(completed(preset.spec))  # type: ignore[attr-defined]
    assert spec.kind in ("rl", "sft", "dpo")
    assert lint(spec) == [], "a starting point that Oolong itself finds odd"


# Of Qwen2.5-1.5B, which the paper's smallest model is distilled into.
STAND_IN = {
    "num_hidden_layers": 28, "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 131072,
}  # fmt: skip
SIZED = [preset for preset in built_in_presets() if preset.sized_for is not None]


def known(preset: Preset) -> Facts:
    assert preset.sized_for is not None
    return Facts(
        train_rows=40_000,
        parameters=preset.sized_for.parameters,
        context_tokens=int(STAND_IN["max_position_embeddings"]),
        kv_bytes_per_token=kv_bytes_per_token(STAND_IN),
        shape=shape_of(STAND_IN),
        slot_memory_bytes=preset.sized_for.gpu_memory_gb * 10**9,
        largest_node_slots=preset.sized_for.gpus,
    )


@pytest.mark.parametrize("preset", SIZED, ids=lambda preset: preset.name)
def test_a_preset_fits_the_gpus_that_it_names(preset: Preset) -> None:
    spec = RunSpec.model_validate(completed(preset.spec))
    assert lint(spec, known(preset)) == []
    assert preset.sized_for is not None and spec.slots_needed == preset.sized_for.gpus


def test_every_preset_but_the_demos_names_its_gpus_and_what_it_needs() -> None:
    assert {preset.name for preset in built_in_presets()} - {preset.name for preset in SIZED} == {
        "letter-sum-rl", "letter-sum-sft",
    }  # fmt: skip
    [paper] = [preset for preset in SIZED if preset.name == "areal-8-gpus"]
    assert paper.explained.endswith(
        "Starts when you name a base model and a dataset. Sized for a model of 1.5 billion parameters on 8 GPUs of "
        "80 GB: 2 for the trainer, 6 for engines."
    )


@pytest.mark.parametrize("name", ["areal-paper", "areal-8-gpus", "dapo"])
def test_without_activation_checkpointing_the_lint_says_what_does_not_fit(name: str) -> None:
    """32,768 tokens a row, of which each layer keeps 103,424 bytes a token: 88 GiB over 28 layers."""
    [preset] = [preset for preset in SIZED if preset.name == name]
    spec = RunSpec.model_validate(completed(preset.spec))
    bare = spec.model_copy(
        update={"trainer": spec.trainer.model_copy(update={"activation_checkpointing": "none"})}
    )
    [finding] = lint(bare, known(preset))
    assert finding.code == "trainer_memory" and "activation_checkpointing=none 9" in finding.message


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
        ("name: [", "line 1: "),
        ("- 1\n", "must be a mapping"),
        ("name: x\ntitle: X\n", "/spec: required, and missing"),
        ("name: x\ntitle: X\nspecs: {}\nspec: {}\n", "/specs: unknown key 'specs'; did you mean 'spec'"),
        ("name: X y\ntitle: X\nspec: {}\n", "/name: must match"),
        ("name: x\ntitle: X\nspec: {algorithm: {clip_low: 0}}\n", "spec/algorithm/clip_low: "),
    ],
)
def test_a_file_that_is_no_preset_is_listed_with_its_error(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(PresetUnusable, match=said) as caught:
        read_preset(file)
    assert "x.yaml" in str(caught.value)
