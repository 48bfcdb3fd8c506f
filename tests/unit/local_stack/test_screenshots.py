"""The README's screenshots name their run and are replaced, not repeated."""

import pytest

from local_stack.errors import StackError
from local_stack.screenshots import MORE, MORE_START, START, insert_screenshots


def test_caption_names_the_run_and_second_screenshots_replace_the_first():
    once = insert_screenshots(f"# Title\n\n{START}\n\nText\n\n{MORE_START}\n\nEnd\n", "run_1")
    assert "`run_1`" in once
    twice = insert_screenshots(once, "run_2")
    assert "run_1" not in twice
    for name in ("run", *(name for name, _, _ in MORE)):
        assert twice.count(f"docs/pictures/{name}.png") == 1
    assert "\n\nText\n\n" in twice
    assert twice.endswith("\n\nEnd\n")


@pytest.mark.parametrize("text", ["# Title\n", f"{START}\n", f"{MORE_START}\n"])
def test_readme_without_a_marker_is_rejected(text: str):
    with pytest.raises(StackError, match="README"):
        insert_screenshots(text, "run_1")
