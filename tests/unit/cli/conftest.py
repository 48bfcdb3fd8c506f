from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.scripted_api import TOKEN, ScriptedApi

ROOT = Path(__file__).resolve().parents[3]
Oolong = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi().serve() as server:
        yield server


@pytest.fixture
def oolong(api: ScriptedApi, tmp_path: Path) -> Oolong:
    """The command as a process of its own, with a home of its own."""

    def call(*arguments: str, token: str | None = TOKEN, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "COLUMNS": "200",
        }
        if token is not None:
            environment |= {"OOLONG_URL": api.url, "OOLONG_TOKEN": token}
        return subprocess.run(
            [sys.executable, "-m", "oolong.cli", *arguments],
            env=environment,
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call
