"""The documentation as the server shows it: every page renders, and every link inside it leads to something."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from control_plane.core.api import docs_pages

ROOT = Path(__file__).parents[4]
PAGES = sorted(
    file.relative_to(ROOT / "docs").with_suffix("").as_posix() for file in (ROOT / "docs").rglob("*.md")
)


def open_page(page: str) -> HttpResponse:
    return docs_pages.docs_page(RequestFactory().get(f"/docs/{page}"), page)


def ids(html: str) -> set[str]:
    return set(re.findall(r' id="([^"]+)"', html))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_something(page: str) -> None:
    html = open_page(page).content.decode()
    for address in map(unescape, re.findall(r'(?:href|src)="([^"]*)"', html)):
        if re.match(r"https?:|mailto:", address) or not address.startswith(("/docs/", "#")):
            continue
        path, _, anchor = address.partition("#")
        reply = open_page(path.removeprefix("/docs/")) if path else open_page(page)
        assert reply.status_code in (200, 302), f"{page} links to {address}"
        if anchor:
            assert anchor in ids(reply.content.decode()), f"{page} links to {address}"


def test_the_first_page_is_the_guide_and_the_menu_marks_the_page() -> None:
    html = open_page("").content.decode()
    assert "<title>Guide" in html and '<a href="/docs/guide" aria-current="page">' in html
    assert "<h2>Concepts</h2>" in html and 'href="/docs/concepts/staleness"' in html
    assert open_page("concepts/staleness.md").content == open_page("concepts/staleness").content


def test_the_type_of_a_problem_document_leads_to_its_row() -> None:
    reply = open_page("errors")
    assert (reply.status_code, reply["Location"]) == (302, "/docs/reference/errors")
    assert {"not_found", "missing_scope", "rate_limited"} <= ids(
        open_page("reference/errors").content.decode()
    )


@pytest.mark.parametrize(
    "page", ["nothing", "../pyproject.toml", "../README", "%2e%2e/manage.py", "how-to/../../manage.py"]
)
def test_what_is_no_page_is_not_found(page: str) -> None:
    assert open_page(page).status_code == 404


def test_pictures_and_files_are_sent_and_nothing_runs() -> None:
    assert open_page("pictures/run.png")["Content-Type"] == "image/png"
    assert open_page("ci/gate.sh")["Content-Type"] == "text/plain; charset=utf-8"
    assert "<script" not in "".join(open_page(page).content.decode() for page in PAGES)
