"""The tiny policies that measures start from, made once and kept under var/bench: random, and warmed up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.tools.local_attempt import ROOT, letter_sum_file, node_python, tiny_model, warm_start

BENCH_DIRECTORY = ROOT / "var" / "bench"
_HOME = BENCH_DIRECTORY / "warm"


@dataclass(frozen=True)
class WarmPolicy:
    model_directory: Path
    dataset: Path  # canonical rows of the letter-sum task


def start_model() -> Path:
    """The tiny model with random weights."""
    _HOME.mkdir(parents=True, exist_ok=True)
    return tiny_model(_HOME, node_python())


def warm_policy() -> WarmPolicy:
    """The same after its supervised warm start on letter-sum; about 40 seconds the first time."""
    model = start_model()
    dataset = letter_sum_file(_HOME)
    return WarmPolicy(warm_start(_HOME, model, dataset, node_python()), dataset)
