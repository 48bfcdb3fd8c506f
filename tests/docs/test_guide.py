"""The guide, pasted from top to bottom into a shell on a clean stack; then every how-to on the same stack."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.clone import Clone, running_clone
from tests.support.pages import GUIDE, HOW_TOS, ROOT, script

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(3600)]

# Where the page's reader stands; the others are in the folder of the quickstart.
IN_THE_CHECKOUT = {"backup.md", "model.md", "operate.md", "security.md"}
SETTINGS = {
    "OOLONG_WEBHOOK_NETWORKS": "127.0.0.1"
}  # as webhooks.md tells whoever tries one on a single machine
LOGGED_IN = """
export OOLONG_URL=$(python3 manage.py url)
export OOLONG_TOKEN=$(python3 manage.py create_token --name how-to --scopes '*')
"""


@dataclass(frozen=True)
class Stack:
    clone: Clone
    up_seconds: float

    def paste(self, text: str, page: str) -> subprocess.CompletedProcess[str]:
        """Run a script in the checkout with a newcomer's environment. `var/test-results/docs` shows it as it runs."""
        python = Path(sys.executable).parent  # a newcomer types python3; here that is the Python of the tests
        path = f"{python}:{os.defpath}"
        transcript = ROOT / "var" / "test-results" / "docs" / f"{page}.log"
        transcript.parent.mkdir(parents=True, exist_ok=True)
        with transcript.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", text], cwd=self.clone.root, start_new_session=True,
                env={**self.clone.environment, "PATH": path, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                code = process.wait()
            finally:  # a page cut off by its time limit leaves no command of its own behind
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return subprocess.CompletedProcess(process.args, code, transcript.read_text())


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    begin = time.monotonic()
    with running_clone(ROOT, SETTINGS) as made:
        yield Stack(made, time.monotonic() - begin)


@pytest.fixture(scope="module")
def guide(stack: Stack) -> subprocess.CompletedProcess[str]:
    return stack.paste(script(GUIDE), "guide")


def test_every_block_of_the_guide_works_as_typed(
    stack: Stack, guide: subprocess.CompletedProcess[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert guide.returncode == 0, guide.stdout[-6000:]
    assert "] : guide.md done" in guide.stdout, "the last block was not reached"
    # `run logs` comes after the wait for the first run of the guide, which is reinforcement learning.
    reached = re.search(r"^\+ \[(\d+) s\] oolong run logs ", guide.stdout, re.MULTILINE)
    assert reached is not None
    seconds = stack.up_seconds + int(reached[1])
    with capsys.disabled():
        load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
        print(
            f"\nFrom `up` in a new checkout, its environments made before, to the first RL run that succeeded: "
            f"{seconds:.0f} s, of which `up` {stack.up_seconds:.0f} s; load (1, 5, 15 minutes) {load} on "
            f"{os.cpu_count()} cores"
        )


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.stem)
def test_every_block_of_a_how_to_works_as_typed(
    stack: Stack, guide: subprocess.CompletedProcess[str], page: Path
) -> None:
    """After the guide, whose samples and checkpoints it takes; each page in a shell of its own."""
    folder = "." if page.name in IN_THE_CHECKOUT else "~/letters"
    done = stack.paste(f"set -euo pipefail{LOGGED_IN}cd {folder}\n{script(page)}", page.stem)
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"] : {page.name} done" in done.stdout, "the last block was not reached"
