"""The guide, pasted from top to bottom into a shell on a clean stack."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clone import Clone, running_clone

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- not run: .+? -->\n)?```sh\n(.*?)```", re.DOTALL)


def blocks(page: Path) -> list[str]:
    """The shell blocks of a page in their order, without those that say why they cannot be run here."""
    return [block for not_run, block in BLOCK.findall(page.read_text()) if not not_run]


@pytest.fixture
def clone() -> Iterator[Clone]:
    with running_clone(ROOT) as made:
        yield made


def test_every_block_of_the_guide_works_as_typed(clone: Clone) -> None:
    typed = blocks(ROOT / "docs" / "guide.md")
    assert len(typed) > 8
    script = "set -euo pipefail\nset -x\n" + "\n".join(typed)
    python = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=clone.root,
        # A newcomer types python3; here that is the Python that runs the tests.
        env={**clone.environment, "PATH": f"{python}:{os.defpath}", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert "+ oolong ckpt prune --apply" in done.stdout, "the last block was not reached"
