"""The walk through the code, the concepts and the how-tos name files and functions that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "architecture.md", *ROOT.glob("docs/concepts/*.md"), *ROOT.glob("docs/how-to/*.md")]
PAGE = "".join(page.read_text() for page in PAGES)
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
