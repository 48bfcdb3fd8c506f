"""The files of the quickstart, written beside each other under the names that the guide uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oolong.samples.demo_dataset import write_dataset
from oolong.samples.preference_pairs import write_pairs
from oolong.samples.tiny_model import write_tiny_model

HERE = Path(__file__).parent


@dataclass(frozen=True)
class SampleFiles:
    """Paths below one directory."""

    directory: Path

    @property
    def dataset(self) -> Path:
        return self.directory / "letters.jsonl"

    @property
    def pairs(self) -> Path:
        return self.directory / "pairs.jsonl"

    @property
    def model(self) -> Path:
        return self.directory / "my-model"

    @property
    def reward(self) -> Path:
        return self.directory / "letters.py"

    @property
    def run(self) -> Path:
        return self.directory / "run.yaml"

    def write(self) -> list[Path]:
        """Write the missing files and return them. Existing files stay, because users may have edited them."""
        makers: dict[Path, Callable[[Path], object]] = {
            self.dataset: write_dataset,
            self.pairs: write_pairs,
            self.model: write_tiny_model,
            self.reward: _copy_of("letters_reward.py"),
            self.run: _copy_of("run.yaml"),
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        missing = [path for path in makers if not path.exists()]
        for path in missing:
            partial = path.with_name(f".{path.name}.partial")
            makers[path](partial)
            partial.rename(path)
        return missing


def _copy_of(sample: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes((HERE / sample).read_bytes())
