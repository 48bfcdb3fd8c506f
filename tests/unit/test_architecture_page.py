"""The walk through the code names files and functions that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PLACES = sorted(
    set(re.findall(r"`((?:platform|gpu_agents|trainers|tests|webui)/[\w/.-]+)(?:::(\w+))?`", PAGE))
)


def test_the_page_names_many_places():
    assert len(PLACES) > 40


@pytest.mark.parametrize(("file", "name"), PLACES, ids=["::".join(filter(None, place)) for place in PLACES])
def test_a_named_place_exists(file, name):
    path = ROOT / file
    assert path.exists()
    if name:
        assert re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", path.read_text(), re.MULTILINE)
