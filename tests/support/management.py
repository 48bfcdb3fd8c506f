"""Management commands of a control plane in one process, so that a test waits for Django's start only once.

`ManagementProcess` is the caller's side; the process runs this module: a JSON list of words per line on its standard
input, a JSON object `{"output", "error"}` per line on its standard output.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ManagementProcess:
    """Runs commands under one environment; starts at the first command."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: tuple[str, ...]) -> str:
        """Standard output of a command without the last newline. Raises RuntimeError if the command fails."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:  # an exception ended it; its traceback is in the log
            self.close()
            raise RuntimeError(f"{' '.join(words)}:\n{self._log.read_text()[-2000:]}")
        reply = json.loads(line)
        if reply["error"]:
            raise RuntimeError(f"{' '.join(words)}:\n{reply['error'][-2000:]}")
        return str(reply["output"]).strip()

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=60)  # the end of its input is the end of the process
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.management"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        return self._process


def serve() -> None:
    """Run the commands of standard input until it ends."""
    import django
    from django.core.management import ManagementUtility
    from django.db import connection

    django.setup()
    for line in sys.stdin:
        words = json.loads(line)
        output, errors = io.StringIO(), io.StringIO()
        error = ""
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                ManagementUtility(["manage.py", *words]).execute()
        except SystemExit as ended:
            error = f"status {ended.code}\n{errors.getvalue()}" if ended.code else ""
        finally:
            connection.close()
            connection.close_pool()  # no connection outlives a command: a test may restart the server
        print(json.dumps({"output": output.getvalue(), "error": error}), flush=True)


if __name__ == "__main__":
    serve()
