"""Published weights are whole, or no engine sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from gpu_agents.rollout.worker.manifest import ExpectedTensors, InvalidWeights, check_weights
from oolong.contracts.rollout import PublishedWeights
from tests.unit.rollout.model_files import SHAPES, publish, seal, write_model, write_safetensors


@dataclass
class Published:
    weights: PublishedWeights
    directory: Path
    expected: ExpectedTensors

    def check(self) -> None:
        check_weights(self.weights, self.expected)

    def seal_again(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """With a manifest that fits the files."""
        self.weights = seal(self.directory, 3, shapes)


@pytest.fixture
def published(tmp_path: Path) -> Published:
    model = write_model(tmp_path / "model")
    weights = publish(tmp_path / "weights", 3)
    return Published(weights, Path(weights.directory), ExpectedTensors.of_model(model))


def test_a_whole_version_passes(published: Published) -> None:
    published.check()


def test_a_tied_head_may_be_there_or_not(published: Published) -> None:
    with_head = SHAPES | {"lm_head.weight": (4, 2)}
    write_safetensors(published.directory / "model.safetensors", with_head)
    published.seal_again(with_head)
    published.check()


def truncated(published: Published) -> None:
    file = published.directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def truncated_with_a_manifest_that_agrees(published: Published) -> None:
    truncated(published)
    published.seal_again(SHAPES)


def one_flipped_bit(published: Published) -> None:
    file = published.directory / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))


def a_missing_file(published: Published) -> None:
    (published.directory / "config.json").unlink()


def a_missing_tensor(published: Published) -> None:
    half = dict(list(SHAPES.items())[:1])
    write_safetensors(published.directory / "model.safetensors", half)
    published.seal_again(half)


def a_tensor_only_in_the_manifest(published: Published) -> None:
    write_safetensors(published.directory / "model.safetensors", dict(list(SHAPES.items())[:1]))
    published.seal_again(SHAPES)


def an_extra_tensor(published: Published) -> None:
    more = SHAPES | {"model.bias": (3,)}
    write_safetensors(published.directory / "model.safetensors", more)
    published.seal_again(more)


def another_shape(published: Published) -> None:
    other = SHAPES | {"model.norm.weight": (3,)}
    write_safetensors(published.directory / "model.safetensors", other)
    published.seal_again(other)


def another_manifest_than_announced(published: Published) -> None:
    file = published.directory / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=1))


def another_version_than_announced(published: Published) -> None:
    published.weights = msgspec.structs.replace(published.weights, version=4)


def no_manifest(published: Published) -> None:
    (published.directory / "manifest.json").unlink()


def no_safetensors_at_all(published: Published) -> None:
    (published.directory / "model.safetensors").write_bytes(b"<html>not found</html>")
    published.seal_again(SHAPES)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "bytes, the manifest says"),
        (truncated_with_a_manifest_that_agrees, "truncated"),
        (one_flipped_bit, "sha256"),
        (a_missing_file, r"config\.json cannot be read"),
        (a_missing_tensor, r"the manifest lacks 1 of 2 tensors, first model\.norm\.weight"),
        (a_tensor_only_in_the_manifest, "the safetensors files lacks 1 of 2 tensors"),
        (an_extra_tensor, r"1 tensors that the model lacks, first model\.bias"),
        (another_shape, r"model\.norm\.weight has shape \[3\], the model's is \[2\]"),
        (another_manifest_than_announced, r"manifest\.json has sha256"),
        (another_version_than_announced, "version 3, version 4 was announced"),
        (no_manifest, r"no readable manifest\.json"),
        (no_safetensors_at_all, "is not a valid safetensors file"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damage_is_refused_and_named(
    published: Published, damage: Callable[[Published], None], message: str
) -> None:
    damage(published)
    with pytest.raises(InvalidWeights, match=message):
        published.check()
