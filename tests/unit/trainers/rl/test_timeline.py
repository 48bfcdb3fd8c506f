from __future__ import annotations

from oolong.contracts.telemetry import Span
from trainers.rl.timeline import trainer_spans


def test_adjacent_phases_of_one_kind_are_one_span() -> None:
    laps = [
        ("prepare", 0.0, 0.0),
        ("wait_batch", 0.0, 2.0),
        ("prepare", 2.0, 2.5),
        ("proximal", 2.5, 3.0),
        ("train", 3.0, 5.0),
        ("gather", 5.0, 5.5),
        ("announce", 5.5, 6.0),
        ("checkpoint", 6.0, 7.0),
    ]
    assert trainer_spans(laps, version=3) == [
        Span(kind="wait", start=0.0, end=2.0, version=3),
        Span(kind="train", start=2.0, end=5.0, version=3),
        Span(kind="publish", start=5.0, end=6.0, version=3),
        Span(kind="checkpoint", start=6.0, end=7.0, version=3),
    ]
