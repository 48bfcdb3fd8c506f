from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from control_plane.assets.background import processes


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces the program of a background job by another one, given as Python."""

    def program(source: str) -> None:
        def start(words: list[str], **options: Any) -> Any:
            return subprocess.Popen([sys.executable, "-c", source, words[-1]], **options)

        fake = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
        monkeypatch.setattr(processes, "subprocess", fake)

    return program
