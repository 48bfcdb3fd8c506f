"""Invitation links, for a new user and for a user with an account."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_new_user_joins_with_the_link_and_the_link_works_once(
    page: Page, plane: ControlPlane, log_in: Callable[[], None]
) -> None:
    log_in()
    link = page.evaluate(
        """async () => {
            const csrf = (await (await fetch("/api/v1/session/csrf")).json()).csrf_token;
            const headers = { "Content-Type": "application/json", "X-CSRFToken": csrf };
            const body = JSON.stringify({ role: "editor", note: "Erin" });
            const reply = await fetch("/api/v1/invitations", { method: "POST", headers, body });
            return (await reply.json()).link;
        }"""
    )
    path = link[link.index("/invite#") :]
    page.goto(path)
    expect(page.get_by_role("button", name="Join as admin")).to_be_visible()

    page.context.clear_cookies()
    page.goto("about:blank")
    page.goto(path)
    expect(page.get_by_text("invites you to team / default as editor")).to_be_visible()
    page.get_by_label("Username").fill("erin")
    page.locator("input[name=password]").fill("correct horse")
    page.get_by_role("button", name="Create account and join").click()
    expect(page.get_by_role("heading", level=1, name="Home")).to_be_visible()
    me = page.evaluate("async () => (await fetch('/api/v1/me')).json()")
    assert (me["user"]["username"], me["role"]) == ("erin", "editor")

    page.goto("about:blank")
    page.goto(path)
    expect(page.get_by_role("alert")).to_contain_text("ask for another")
