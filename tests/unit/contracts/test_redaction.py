"""No form of a secret that is known leaves a job, wherever its stream is cut."""

from __future__ import annotations

import json
import random
from pathlib import Path
from urllib.parse import quote

import pytest

from oolong import redaction
from oolong.contracts.attempt import JobResult, write_result
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import Note, Outbox, Points, decode_line
from oolong.redaction import Redactor, variables

KEY = "s3cr3t/with+signs="
PEM = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nshort\n-----END KEY-----\n"
MASK = "[secret KEY]"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_value_is_found_wherever_the_stream_is_cut(size: int) -> None:
    text = (
        f"a {KEY} b {KEY}{KEY} c s3cr3t/with d {KEY[:-1]} {json.dumps(PEM)} {PEM}{quote(KEY, safe='')} e s3cr"
    )
    expected = (
        f'a {MASK} b {MASK}{MASK} c s3cr3t/with d {KEY[:-1]} "[secret PEM]\\n" [secret PEM]\n{MASK} e s3cr'
    )
    redactor, data = Redactor({"KEY": KEY, "PEM": PEM}), text.encode()
    pieces = [redactor.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join([*pieces, redactor.end()]).decode() == expected
    assert Redactor({"KEY": KEY, "PEM": PEM}).text(text) == expected


def test_cutting_changes_nothing() -> None:
    """Values that begin and end alike, in texts made of their pieces; the same seeds each time."""
    values = {"A": "abababab", "B": "abababababcc", "C": "ccabababab", "D": "xyxyxyxyabababab"}
    for seed in range(300):
        draw = random.Random(seed)
        pieces = [
            draw.choice(["ab", "a", "cc", "xy", *values.values()]) for _ in range(draw.randrange(1, 12))
        ]
        data = "".join(pieces).encode()
        cuts = sorted(draw.sample(range(len(data) + 1), min(4, len(data))))
        redactor = Redactor(values)
        parts = [redactor.feed(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert b"".join([*parts, redactor.end()]) == Redactor(values).redact(data), (seed, data)


def test_a_whole_line_never_waits_for_the_next() -> None:
    redactor = Redactor({"KEY": KEY, "PEM": PEM})
    assert redactor.feed(b"epoch 3 of 5\n") == b"epoch 3 of 5\n"
    assert redactor.feed(b"key: s3cr3") == b"key: "
    assert redactor.feed(b"t is what it began like\n") == b"s3cr3t is what it began like\n"


def test_each_line_of_a_long_value_is_one_and_short_ones_are_words() -> None:
    redactor = Redactor({"PEM": PEM, "PIN": "1234"})
    assert redactor.text("log: MIIEowIBAAKCAQEA; short; 1234") == "log: [secret PEM]; short; 1234"


def test_without_secrets_nothing_changes() -> None:
    redactor = Redactor({})
    assert redactor.feed(b"any\xffthing") == b"any\xffthing" == redactor.redact(b"any\xffthing")
    assert variables({"PATH": "/bin"}) == {} == variables({"OOLONG_SECRETS": ""})
    assert variables({"OOLONG_SECRETS": "A,B", "A": "x", "C": "y"}) == {"A": "x"}


def test_what_a_job_writes_itself_is_redacted_and_its_numbers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oolong.contracts.telemetry.of_this_job", lambda: Redactor({"KEY": "12345678"}))
    monkeypatch.setattr("oolong.contracts.attempt.of_this_job", lambda: Redactor({"KEY": "12345678"}))
    outbox = Outbox(tmp_path, 0)
    outbox.write(Note(at=1.0, kind="told", message="key=12345678"))
    outbox.write(Points(at=12345678.0, axis="step", x=12345678, values={"a": 0.12345678}))
    outbox.close()
    note, points = map(decode_line, (tmp_path / "outbox" / "main-0.jsonl").read_bytes().splitlines())
    assert note == Note(at=1.0, kind="told", message="key=[secret KEY]")
    assert points == Points(at=12345678.0, axis="step", x=12345678, values={"a": 0.12345678})
    write_result(tmp_path, JobResult(reason=EndReason.COMPLETED, message="no 12345678"))
    assert "no [secret KEY]" in (tmp_path / "result.json").read_text()


def test_the_processes_of_a_job_know_its_secrets_by_their_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OOLONG_SECRETS", "KEY")
    monkeypatch.setenv("KEY", KEY)
    redaction.of_this_job.cache_clear()
    try:
        assert redaction.of_this_job().text(f"<{KEY}>") == f"<{MASK}>"
    finally:
        redaction.of_this_job.cache_clear()
