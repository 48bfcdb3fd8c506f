"""The README's picture carries the id of the run it shows, and is replaced, not repeated."""

import pytest

from local_stack.errors import StackError
from local_stack.screenshots import START, insert_screenshot


def test_the_caption_names_the_run_and_a_second_picture_replaces_the_first():
    once = insert_screenshot(f"# Title\n\n{START}\n\nText\n", "run_1")
    assert "`run_1`" in once
    twice = insert_screenshot(once, "run_2")
    assert "run_1" not in twice
    assert twice.count("docs/pictures/run.png") == 1
    assert twice.endswith("\n\nText\n")


def test_a_readme_without_the_mark_is_left_alone():
    with pytest.raises(StackError, match="README"):
        insert_screenshot("# Title\n", "run_1")
