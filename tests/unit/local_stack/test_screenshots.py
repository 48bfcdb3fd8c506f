"""The README's screenshot names its run and is replaced, not repeated."""

import pytest

from local_stack.errors import StackError
from local_stack.screenshots import START, insert_screenshot


def test_caption_names_the_run_and_a_second_screenshot_replaces_the_first():
    once = insert_screenshot(f"# Title\n\n{START}\n\nText\n", "run_1")
    assert "`run_1`" in once
    twice = insert_screenshot(once, "run_2")
    assert "run_1" not in twice
    assert twice.count("docs/pictures/run.png") == 1
    assert twice.endswith("\n\nText\n")


def test_readme_without_marker_is_rejected():
    with pytest.raises(StackError, match="README"):
        insert_screenshot("# Title\n", "run_1")
