from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oolong.cli import logs
from oolong.cli.app import main
from tests.support.scripted_api import TOKEN, ScriptedApi

Oolong = Callable[..., subprocess.CompletedProcess[str]]


SHORTENED = 50  # the client's pauses between two requests are shorter by this factor


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Shorten the pauses of the synchronous client and return the seconds that it wanted. Timeouts stay as they are."""
    wanted: list[float] = []

    def sleep(seconds: float) -> None:
        wanted.append(seconds)
        time.sleep(seconds / SHORTENED)

    monkeypatch.setattr(logs, "FOLLOW_SECONDS", logs.FOLLOW_SECONDS / SHORTENED)
    for name, module in list(sys.modules.items()):
        if name.startswith("oolong.client.sync.") and hasattr(module, "sleep"):
            monkeypatch.setattr(module, "sleep", sleep)
    return wanted


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi().serve() as server:
        yield server


@pytest.fixture
def oolong(api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Oolong:
    """The command as its entry point runs it, in this process, with a home, arguments and streams of its own.

    A process for each call would spend a second on imports. One test starts a real one.
    """

    def call(*arguments: str, token: str | None = TOKEN, stdin: str = "") -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch:
            patch.setenv("HOME", str(tmp_path))
            patch.setenv("COLUMNS", "200")
            patch.delenv("OOLONG_URL", raising=False)
            patch.delenv("OOLONG_TOKEN", raising=False)
            patch.setenv("OOLONG_PROFILE", "")  # --profile sets it for its process
            if token is not None:
                patch.setenv("OOLONG_URL", api.url)
                patch.setenv("OOLONG_TOKEN", token)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["oolong", *arguments])
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            try:
                main()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    return call
