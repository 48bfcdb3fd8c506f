"""The fences of the guide and the how-tos say what the docs lane does with their blocks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from oolong.contracts.run_spec import spec_errors
from tests.support.pages import GUIDE, HOW_TOS, REASONS, RUN, SHOWN, blocks, script

PAGES = [GUIDE, *HOW_TOS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_run_saved_or_says_why_not(page: Path) -> None:
    text = page.read_text()
    found = blocks(text)
    assert len(found) == sum(line.lstrip().startswith("```") for line in text.splitlines()) / 2
    for one in found:
        where = f"{page.name} line {one.line}"
        assert one.language in RUN | SHOWN, f"{where}: {one.language!r} is none of {sorted(RUN | SHOWN)}"
        assert not one.reason or one.reason in REASONS, (
            f"{where}: {one.reason!r} is none of {sorted(REASONS)}"
        )
        if one.title:
            above = text.split("```")[: 2 * found.index(one) + 1]
            assert f"`{one.title}`" in "".join(above), f"{where}: the text does not say where to save it"


def test_few_blocks_are_not_run() -> None:
    every = [one for page in PAGES for one in blocks(page.read_text()) if one.language in RUN]
    assert len(every) > 50
    assert sum(bool(one.reason) for one in every) <= len(every) / 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_script_of_a_page_is_bash(page: Path) -> None:
    checked = subprocess.run(
        ["bash", "-n"], input=script(page), capture_output=True, text=True, check=False, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.stem)
def test_a_how_to_that_is_run_says_where(page: Path) -> None:
    text = page.read_text()
    if any(one.language == "sh" and not one.reason for one in blocks(text)):
        assert "#quickstart)" in text or "in the checkout" in text.lower()


def test_a_page_s_files_are_written_and_its_blocks_run_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python title=\"hello.py\"\nprint('saved')\n```\n"
        "1. In a list:\n\n   ```sh\n   NAME=x\n   python3 hello.py\n   ```\n"
        '```sh not-run="a GPU"\nfalse\n```\n'
        "```json\n{}\n```\n"
        "```python\nprint('run')\n```\n"
        "```yaml\nstaleness: {max: 2}\n```\n"
        "```sh\necho $NAME\n```\n"
    )
    (tmp_path / "oolong").write_text('#!/bin/sh\necho "oolong $*"\n')
    (tmp_path / "oolong").chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script(page)], cwd=tmp_path, env={"PATH": f"{tmp_path}:{os.defpath}"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["saved", "run", "oolong run validate -f .page-19.yaml", "x"]
    part = yaml.safe_load((tmp_path / ".page-19.yaml").read_text())
    assert part["staleness"] == {"max": 2} and spec_errors(part) == []


@pytest.mark.parametrize("info", ["sh not-run", "sh not-run: later", 'yaml file="a"', "sh extra"])
def test_a_fence_that_says_something_else_is_refused(info: str) -> None:
    with pytest.raises(ValueError, match="line 3"):
        blocks(f"Text.\n\n```{info}\ntrue\n```\n")
