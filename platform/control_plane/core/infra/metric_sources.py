"""Which functions /metrics asks for what the database knows. Apps to the right put theirs here at their start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.metrics_core import Metric

Collect = Callable[[], Iterable[Metric]]
SOURCES: list[Collect] = []


def register(collect: Collect) -> None:
    if collect not in SOURCES:
        SOURCES.append(collect)
