"""The pool page for each role: only admins of the pool can act on its nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import ADMIN, PASSWORD
from tests.support.control_plane import ControlPlane
from tests.support.scripted_node import ScriptedNode

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PEOPLE = """
from control_plane.accounts.models import Membership, Project, User
from control_plane.fleet import pools
from control_plane.fleet.models import Pool
lab = pools.create_pool("lab")
project = Project.objects.get()
pools.bind_team(lab, project.team)
for name, role in (("vera", "viewer"), ("otto", "operator"), ("erin", "viewer")):
    user = User(username=name)
    user.set_password(PASSWORD)
    user.save()
    Membership.objects.create(user=user, project=project, role=role)
pools.appoint_admin(lab, User.objects.get(username="erin"))
"""
HELP = "ask a pool admin, or ask an installation admin to appoint you"


@pytest.fixture(scope="module")
def lab(plane: ControlPlane) -> Iterator[ScriptedNode]:
    """A pool with one node. Vera and Otto may use it, and Erin manages it."""
    plane.manage("shell", "-c", PEOPLE.replace("PASSWORD", repr(PASSWORD)))
    token = plane.manage("join_token", "--pool", "lab").splitlines()[-1]
    node = ScriptedNode(plane.url, token, name="north")
    node.start()
    yield node
    node.close()


@pytest.fixture
def opens(page: Page) -> Callable[[str], None]:
    """Open the page of the pool as another user."""

    def open_as(name: str) -> None:
        page.context.clear_cookies()
        page.goto("/")
        page.get_by_label("Username").fill(name)
        page.locator("input[name=password]").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1, name="Home")).to_be_visible()
        page.goto("/pool?pool=lab")
        expect(page.get_by_role("heading", level=1, name="Pool lab")).to_be_visible()
        expect(page.get_by_test_id("nodes")).to_contain_text("north")

    return open_as


def test_only_admins_revoke_nodes_and_delete_pools_after_a_confirmation(
    page: Page, opens: Callable[[str], None], lab: ScriptedNode
) -> None:
    actions = page.get_by_role("button", name="Actions on north")
    delete = page.get_by_role("button", name="Delete pool")
    for name in ("vera", "otto"):
        opens(name)
        expect(actions).to_be_disabled()
        expect(page.get_by_role("button", name="Add a node")).to_be_disabled()
        expect(delete).to_have_count(0)
        expect(page.get_by_text(HELP)).to_be_visible()

    opens(ADMIN)
    delete.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("You cannot delete a pool that has nodes")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("it has 1 node (north)")

    opens("erin")
    expect(delete).to_have_count(0)
    expect(page.get_by_label("Limit of team, slots")).to_be_visible()
    actions.click()
    page.get_by_role("menuitem", name=re.compile("^Revoke")).click()
    expect(dialog).to_contain_text("each from its last stored checkpoint")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_test_id("nodes")).to_contain_text("north")
    actions.click()
    page.get_by_role("menuitem", name=re.compile("^Revoke")).click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.get_by_test_id("nodes")).not_to_contain_text("north")
    expect(dialog).to_have_count(0)

    page.context.clear_cookies()
    page.goto("/")
    page.get_by_label("Username").fill(ADMIN)
    page.locator("input[name=password]").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name="Home")).to_be_visible()
    page.goto("/pool?pool=lab")
    delete.click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("/pool$"))
    expect(page.get_by_role("heading", level=1, name="Pool")).to_be_visible()
    expect(page.get_by_text("lab", exact=True)).to_have_count(0)
