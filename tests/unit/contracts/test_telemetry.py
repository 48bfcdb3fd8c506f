import msgspec
import pytest

from oolong.contracts.metrics import METRICS
from oolong.contracts.telemetry import Histogram, Note, Outbox, Points, StateSnapshot, Summary, decode_line


def test_an_outbox_holds_whole_lines_that_decode_to_what_was_written(tmp_path):
    outbox = Outbox(tmp_path, incarnation=2)
    outbox.write(Points(axis="step", x=3, values={"reward/mean": 0.5}))
    outbox.write(Histogram(name="staleness/consumed", x=3, counts={"0": 4}))
    outbox.close()
    data = (tmp_path / "outbox" / "main-2.jsonl").read_bytes()
    assert data.endswith(b"\n")
    points, histogram = [decode_line(line) for line in data.splitlines()]
    assert points.values == {"reward/mean": 0.5} and points.at > 0
    assert histogram.counts == {"0": 4}


def test_an_outbox_is_appended_to_after_a_reopen(tmp_path):
    for value in (1, 2):
        outbox = Outbox(tmp_path, incarnation=0)
        outbox.write(Summary(name="sft", value={"steps": value}))
        outbox.close()
    lines = (tmp_path / "outbox" / "main-0.jsonl").read_bytes().splitlines()
    assert [decode_line(line).value["steps"] for line in lines] == [1, 2]


def test_a_line_of_an_unknown_type_does_not_decode():
    with pytest.raises(msgspec.ValidationError, match="type"):
        decode_line(b'{"type":"gossip"}')


def test_every_metric_says_what_it_is():
    assert len(METRICS) > 50
    for metric in METRICS.values():
        assert "/" in metric.name and len(metric.help) > 10


def test_half_a_character_and_a_nan_do_not_cost_a_line(tmp_path):
    """What code of users or the policy made up: the line is written, with what can be kept of it."""
    outbox = Outbox(tmp_path, 0)
    outbox.write(Note(kind="reward", message="half \ud800, whole"))
    outbox.write(StateSnapshot(name="d", value={"\udfff": [float("nan"), {"a": "\ud83d"}]}))
    outbox.close()
    first, second = map(decode_line, (tmp_path / "outbox" / "main-0.jsonl").read_bytes().splitlines())
    assert isinstance(first, Note) and first.message == "half \ufffd, whole"
    assert isinstance(second, StateSnapshot) and second.value == {"\ufffd": [None, {"a": "\ufffd"}]}
