"""The documentation of this version, rendered from `docs/`: it can be read without a network, at /docs."""

from __future__ import annotations

import mimetypes
import posixpath
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from markdown_it import MarkdownIt
from markdown_it.token import Token

from control_plane.core.api.errors import problem_response

REPOSITORY = Path(__file__).resolve().parents[4]
DOCS = REPOSITORY / "docs"
HERE = Path(__file__).parent
FIRST_PAGE = "guide"
SECTIONS = {"how-to": "How to", "concepts": "Concepts", "reference": "Reference"}
BESIDE_DOCS = ("SECURITY", "CHANGELOG")  # pages of the repository's root that the documentation links to


def docs_page(request: HttpRequest, page: str = "") -> HttpResponse:
    """A page as HTML, or a file that a page shows or links to."""
    name = page.strip("/").removesuffix(".md") or FIRST_PAGE
    if name == "errors":  # where the `type` of every problem document points
        return HttpResponseRedirect("/docs/reference/errors")
    if name == "docs.css":
        return HttpResponse((HERE / "docs.css").read_bytes(), content_type="text/css; charset=utf-8")
    file = _files().get(name)
    if file is None:
        return problem_response(
            request, 404, "not_found", f"the documentation has no page {page!r}; see /docs"
        )
    if file.suffix != ".md":
        return HttpResponse(file.read_bytes(), content_type=_content_type(file))
    return HttpResponse(_html(name), content_type="text/html; charset=utf-8")


@cache
def _files() -> dict[str, Path]:
    """What /docs serves, by the path behind it; pages without their suffix."""
    files = {name: REPOSITORY / f"{name}.md" for name in BESIDE_DOCS}
    for file in DOCS.rglob("*"):
        if file.is_file():
            files[file.relative_to(DOCS).as_posix().removesuffix(".md")] = file
    return {name: file for name, file in files.items() if file.is_file()}


def _content_type(file: Path) -> str:
    kind = mimetypes.guess_type(file.name)[0] or ""
    return kind if kind.startswith("image/") else "text/plain; charset=utf-8"


@cache
def _html(name: str) -> str:
    tokens = _MARKDOWN.parse(_files()[name].read_text(encoding="utf-8"))
    title = next((inline.content for inline in tokens if inline.type == "inline"), name)
    _name_headings(tokens)
    _name_codes(tokens)
    for token in _flat(tokens):
        for attribute in ("href", "src"):
            if attribute in token.attrs:
                token.attrs[attribute] = _address(name, str(token.attrs[attribute]))
    return (HERE / "docs.html").read_text().format(
        title=escape(_plain(title)), menu=_menu(name), body=_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    )  # fmt: skip


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def _flat(tokens: Sequence[Token]) -> Sequence[Token]:
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def _name_headings(tokens: Sequence[Token]) -> None:
    """Give headings the ids that links in the pages use: the words of the heading, joined by hyphens."""
    for heading, inline in pairwise(tokens):
        if heading.type == "heading_open":
            heading.attrs["id"] = re.sub(r"[^\w\- ]", "", _plain(inline.content).lower()).replace(" ", "-")


def _name_codes(tokens: Sequence[Token]) -> None:
    """Give a table row whose first cell is one code that code as id, as in /docs/errors#not_found."""
    for row, _cell, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if row.type == "tr_open" and (found := re.fullmatch(r"`(\w+)`", inline.content)):
            row.attrs["id"] = found[1]


def _address(page: str, address: str) -> str:
    """A link of a page as the server has it; addresses of other sites and anchors stay."""
    if re.match(r"[a-z]+:|#|/", address):
        return address
    path, mark, anchor = address.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if target.startswith("../"):
        target = posixpath.basename(target)
    return f"/docs/{target.removesuffix('.md')}{mark}{anchor}"


def _plain(title: str) -> str:
    """A heading without its Markdown."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")


@cache
def _titles() -> dict[str, str]:
    found = {}
    for name, file in _files().items():
        if file.suffix == ".md":
            first = next(
                (line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# ")), ""
            )
            found[name] = _plain(first.removeprefix("# ")) or name
    return found


def _menu(current: str) -> str:
    lines = [_entry(FIRST_PAGE, current)]
    for folder, title in SECTIONS.items():
        names = sorted(name for name in _titles() if posixpath.dirname(name) == folder)
        lines += [f"<h2>{title}</h2>", *(_entry(name, current) for name in names)]
    return "\n".join(lines)


def _entry(name: str, current: str) -> str:
    marked = ' aria-current="page"' if name == current else ""
    return f'<a href="/docs/{name}"{marked}>{escape(_titles()[name])}</a>'
