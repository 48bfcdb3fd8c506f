"""Log lines: one JSON object each, with what they are about."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from control_plane.accounts.identity.services import create_login_link
from control_plane.core.infra.request_logging import log_requests
from oolong.logs import JsonLines, TextLines, about, formatter
from tests.unit.control_plane.conftest import Person


@pytest.fixture
def lines() -> Iterator[Any]:
    """What these tests and the control plane write, as JSON; call it for the lines so far.

    Not heard: a thread of another test, and asyncio, which tells of another test's task whenever that is collected.
    """
    stream, here = io.StringIO(), threading.get_ident()
    handler = logging.StreamHandler(stream)
    handler.addFilter(
        lambda record: record.thread == here and record.name.partition(".")[0] in ("x", "control_plane")
    )
    handler.setFormatter(JsonLines("web"))
    root = logging.getLogger()
    root.addHandler(handler)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)


def test_a_line_carries_what_it_is_about(lines: Any) -> None:
    with about(run="run_1"), about(attempt="att_1", request_id=""):
        logging.getLogger("x").warning("lost %d", 3)
    logging.getLogger("x").warning("after")
    first, second = lines()
    assert (first["message"], first["run"], first["attempt"]) == ("lost 3", "run_1", "att_1")
    assert "request_id" not in first, "an empty subject says nothing"
    assert first["service"] == "web" and first["level"] == "warning" and first["at"].endswith("Z")
    assert "run" not in second


def test_a_message_with_line_breaks_stays_one_line(lines: Any) -> None:
    logging.getLogger("x").error('forged\n{"level": "info"}')
    (only,) = lines()
    assert only["message"] == 'forged\n{"level": "info"}'


def test_a_stranger_forges_no_line_for_people_either() -> None:
    record = logging.makeLogRecord({"name": "x", "msg": "nothing at %s", "args": ("/a\nERROR \x1b[2J",)})
    assert TextLines().format(record).endswith("x nothing at /a\\nERROR \\x1b[2J")


def test_an_exception_stands_in_its_line(lines: Any) -> None:
    try:
        raise ValueError("bad value 7")
    except ValueError:
        logging.getLogger("x").exception("could not")
    (only,) = lines()
    assert "bad value 7" in only["error"] and "Traceback" in only["error"]


def test_what_cannot_be_json_is_written_as_text(lines: Any) -> None:
    logging.getLogger("x").warning("odd", extra={"thing": object()})
    assert lines()[0]["thing"].startswith("<object")


def test_a_request_names_itself_its_run_and_its_answer(
    lines: Any, alice: Person, caplog: pytest.LogCaptureFixture
) -> None:
    run = alice.run()
    with caplog.at_level(logging.INFO):
        answer = alice.get(f"/runs/{run['id']}", **{"x-request-id": "req-of-mine"})
    line = next(line for line in lines() if line.get("request_id") == "req-of-mine")
    assert answer.status_code == 200
    assert (line["run"], line["status"], line["area"]) == (run["id"], 200, "runs")


@pytest.mark.parametrize(
    ("failure", "status", "level"),
    [(asyncio.CancelledError(), 499, "info"), (RuntimeError("out of the blue"), 500, "error")],
)
async def test_a_client_that_left_is_no_server_error(
    lines: Any, failure: BaseException, status: int, level: str
) -> None:
    async def fail(request: HttpRequest) -> HttpResponse:
        raise failure

    with pytest.raises(type(failure)):
        await log_requests(fail)(RequestFactory().get("/"))
    assert [(line["status"], line["level"]) for line in lines()] == [(status, level)]


def test_no_credential_is_in_a_line(
    lines: Any, alice: Person, clock: Any, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    link = create_login_link(alice.user, now=clock.now)
    caplog.set_level(logging.DEBUG, "control_plane.core.infra.request_logging")
    client.get(link)
    alice.get("/runs?name=x&token=of-a-careless-client")
    told = json.dumps(lines())
    assert "/login/<str:token>" in told
    for secret in (alice.token, link.rpartition("/")[2], "of-a-careless-client"):
        assert secret not in told


def test_text_is_for_a_terminal_and_json_for_a_file() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    record = logging.makeLogRecord({"msg": "hello", "levelname": "INFO", "name": "x"})
    with about(run="run_1"):
        assert formatter("web", stream=Terminal()).format(record).endswith("INFO x hello [run=run_1]")
        assert json.loads(formatter("web", stream=io.StringIO()).format(record))["run"] == "run_1"
        assert json.loads(formatter("web", "json", stream=Terminal()).format(record))["message"] == "hello"


def test_a_form_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="OOLONG_LOG_FORMAT='xml': json, text, or unset"):
        formatter("web", "xml")
