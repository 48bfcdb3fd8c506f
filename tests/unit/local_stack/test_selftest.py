"""The closing line counts what the reports say, and a skip needs a permit under CI."""

from pathlib import Path

from local_stack.selftest import allowed_skips, read_report, refused_skips

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.unit.a" name="test_one"/>
<testcase classname="tests.unit.a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.unit.a" name="test_three"><error message="setup"/></testcase>
<testcase classname="tests.unit.a" name="test_four"><skipped message="needs an NVIDIA GPU"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted(tmp_path: Path):
    (tmp_path / "r.xml").write_text(REPORT)
    outcome = read_report(tmp_path / "r.xml")
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert outcome.skipped == [("tests.unit.a::test_four", "needs an NVIDIA GPU")]
    assert "tests.unit.a::test_two" in outcome.problems


def test_an_absent_report_counts_nothing(tmp_path: Path):
    assert read_report(tmp_path / "none.xml").passed == 0


def test_only_skips_on_the_list_are_allowed(tmp_path: Path):
    (tmp_path / "list.txt").write_text("# why\nneeds an NVIDIA GPU\n\n")
    allowed = allowed_skips(tmp_path / "list.txt")
    skipped = [("tests.gpu::a", "needs an NVIDIA GPU"), ("tests.unit::b", "no browser")]
    assert refused_skips(skipped, allowed) == [("tests.unit::b", "no browser")]


def test_the_list_of_this_repository_allows_only_what_needs_a_gpu(checkout):
    allowed = allowed_skips(checkout / "tests" / "allowed_skips.txt")
    assert allowed and all("GPU" in line for line in allowed)
