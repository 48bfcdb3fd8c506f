import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "reference_pages.py"))


@pytest.mark.parametrize("name", sorted(TOOL["pages"]()))
def test_the_committed_reference_page_is_what_the_contracts_say(name):
    committed = (TOOL["PAGES"] / name).read_text()
    assert committed == TOOL["pages"]()[name], "run: .venv/bin/python tests/tools/reference_pages.py"
