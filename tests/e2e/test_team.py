"""The pages Team, Account and Admin: as the admin of the installation, and as a viewer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import ADMIN, PASSWORD
from tests.support.browser import accessibility_faults
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Session:
    """A browser's session without a browser, to prepare what the pages show."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=60)

    def post(self, path: str, **body: Any) -> Any:
        token = self._client.get("/api/v1/session/csrf").json()["csrf_token"]
        headers = {"X-CSRFToken": token, "Origin": str(self._client.base_url).rstrip("/")}
        reply = self._client.post(f"/api/v1{path}", json=body, headers=headers)
        assert reply.status_code < 300, reply.text
        return reply.json()

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[Session]:
    """The plane with a viewer, vera, besides its admin."""
    session, vera = Session(plane.url), Session(plane.url)
    session.post("/session", username=ADMIN, password=PASSWORD)
    secret = session.post("/invitations", role="viewer", note="Vera")["link"].partition("#")[2]
    vera.post("/invitations/accept", secret=secret, username="vera", password=PASSWORD)
    vera.close()
    yield session
    session.close()


@pytest.fixture
def as_viewer(page: Page, admin: Session) -> Page:
    page.goto("/login?next=/team")
    page.get_by_label("Username").fill("vera")
    page.locator("input[name=password]").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name="Team")).to_be_visible()
    return page


def shown_once(page: Page) -> str:
    """What a dialog shows once; closes it."""
    value = page.get_by_test_id("shown-once").text_content() or ""
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    return value


def confirm(page: Page) -> None:
    """Cancel has the focus in a destructive dialog; then does it."""
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.get_by_test_id("confirm").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def row(page: Page, table: str, text: str) -> Locator:
    return page.get_by_test_id(table).get_by_role("row").filter(has_text=text)


def test_members_get_and_lose_roles_with_the_effects_said(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.get_by_role("link", name="Team", exact=True).click()
    expect(row(page, "members", ADMIN)).to_contain_text("you")
    page.get_by_role("button", name="Actions on vera").click()
    page.get_by_role("menuitem", name="Change the role in the project").click()
    page.get_by_role("combobox", name="Role").click()
    page.get_by_role("option", name="editor").click()
    expect(page.get_by_test_id("effects")).to_contain_text("vera also creates and changes datasets")
    page.get_by_role("button", name="Change role").click()
    expect(row(page, "members", "vera")).to_contain_text("editor")
    page.get_by_role("button", name="Actions on admin").click()
    expect(page.get_by_role("menuitem", name="Leave the team")).to_be_disabled()
    page.keyboard.press("Escape")

    page.get_by_role("button", name="Actions on vera").click()
    page.get_by_role("menuitem", name="Change the role in the project").click()
    page.get_by_role("combobox", name="Role").click()
    page.get_by_role("option", name="viewer").click()
    expect(page.get_by_test_id("effects")).to_contain_text("tokens lose the scopes")
    page.get_by_role("button", name="Change role").click()
    expect(row(page, "members", "vera")).to_contain_text("viewer")

    page.get_by_role("button", name="Add member").click()
    page.get_by_label("Username").fill("nobody")
    page.get_by_role("dialog").get_by_role("button", name="Add member").click()
    expect(page.get_by_text("send an invitation instead")).to_have_count(1)


def test_an_invitation_is_shown_once_and_revoked(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.goto("/team?tab=invitations")
    page.get_by_role("button", name="Invite somebody").click()
    page.get_by_label("For").fill("Dana")
    page.get_by_role("button", name="Create link").click()
    assert re.fullmatch(r"http://.+/invite#\S+", shown_once(page))
    row(page, "invitations", "Dana").get_by_role("button", name="Revoke").click()
    confirm(page)
    expect(row(page, "invitations", "Dana")).to_contain_text("Revoked")


def test_a_service_account_gets_a_token_that_is_rotated_and_ends_with_it(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.goto("/team?tab=service-accounts")
    page.get_by_role("button", name="New service account").click()
    page.get_by_label("Name").fill("Night Job")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("is no name here: small letters")
    page.get_by_label("Name").fill("nightly")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("button", name="New token of nightly").click()
    page.get_by_label("Name").fill("pipeline")
    page.get_by_role("button", name="Create token").click()
    first = shown_once(page)
    assert first.startswith("ool_")
    page.get_by_role("button", name="Rotate pipeline").click()
    page.get_by_role("button", name="Rotate", exact=True).click()
    assert shown_once(page) != first
    expect(row(page, "tokens", "pipeline")).to_contain_text("old secret ends in")
    page.get_by_role("button", name="Actions on nightly").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("Its 1 live token stops working at once")
    confirm(page)
    expect(page.get_by_text("No service accounts yet")).to_be_visible()


def test_a_secret_is_set_replaced_and_deleted_and_never_shown(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.goto("/team?tab=secrets")
    page.get_by_role("button", name="Set a secret").click()
    page.get_by_label("Name").fill("WANDB_KEY")
    page.locator("input[type=password]").fill("short")
    page.get_by_role("dialog").get_by_role("button", name="Set secret").click()
    expect(page.get_by_role("dialog")).to_contain_text("at least 8 characters")
    page.locator("input[type=password]").fill("0123456789abcdef")
    page.get_by_role("dialog").get_by_role("button", name="Set secret").click()
    expect(row(page, "secrets", "WANDB_KEY")).to_contain_text("trainer of a run")
    assert "0123456789abcdef" not in page.content()
    fingerprint = row(page, "secrets", "WANDB_KEY").get_by_role("cell").nth(4).text_content()
    page.get_by_role("button", name="Actions on WANDB_KEY").click()
    page.get_by_role("menuitem", name="Replace").click()
    page.locator("input[type=password]").fill("another value of it")
    page.get_by_role("dialog").get_by_role("button", name="Replace").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(row(page, "secrets", "WANDB_KEY").get_by_role("cell").nth(4)).not_to_have_text(str(fingerprint))
    page.get_by_role("button", name="Runs that name WANDB_KEY").click()
    expect(page.get_by_role("dialog")).to_contain_text("No run names it")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Actions on WANDB_KEY").click()
    page.get_by_role("menuitem", name="Delete").click()
    confirm(page)
    expect(page.get_by_text("No secrets yet")).to_be_visible()


def test_the_audit_log_is_filtered_by_the_url_and_its_chain_holds(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.goto("/team?tab=audit&action=invitation.*")
    expect(row(page, "audit", "invitation.create").first).to_be_visible()
    expect(row(page, "audit", "login")).to_have_count(0)
    expect(page.get_by_test_id("chain")).to_have_attribute("data-holds", "true")
    row(page, "audit", "Vera").get_by_role("button", name=re.compile("^Details of invitation.create")).click()
    expect(page.get_by_test_id("audit-entry")).to_contain_text('"role": "viewer"')
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "invitation.create" in download.value.path().read_text()
    page.get_by_label("Who").fill("somebody else")
    expect(page.get_by_text("No entry matches")).to_be_visible()
    expect(page).to_have_url(re.compile("actor=somebody"))


def test_a_viewer_sees_what_the_role_allows_and_has_own_tokens(as_viewer: Page) -> None:
    page = as_viewer
    expect(page.get_by_role("tab")).to_have_text(["Members", "Service accounts", "Secrets"])
    expect(page.get_by_role("link", name="Admin", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Add member")).to_have_count(0)
    expect(page.get_by_role("button", name=f"Actions on {ADMIN}")).to_have_count(0)
    page.get_by_role("button", name="Actions on vera").click()
    expect(page.get_by_role("menuitem")).to_have_text(["Leave the project"])
    page.goto("/team?tab=audit")
    expect(page.get_by_text("This tab is for admins of the project")).to_be_visible()
    page.goto("/admin")
    expect(page.get_by_text("This page is for admins")).to_be_visible()

    page.goto("/tokens")
    expect(page).to_have_url(re.compile("/account#tokens$"))
    expect(page.get_by_text(re.compile("^Password, "))).to_be_visible()
    page.get_by_role("button", name="New token").click()
    expect(page.get_by_role("checkbox", name="runs:write")).to_have_count(0)
    page.get_by_label("Name").fill("notebook")
    page.get_by_role("button", name="Create token").click()
    assert shown_once(page).startswith("ool_")
    page.get_by_role("button", name="Revoke notebook").click()
    confirm(page)
    expect(page.get_by_text("No tokens yet")).to_be_visible()


def test_the_account_chooses_the_time_zone_of_every_time(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.goto("/account")
    page.get_by_role("combobox", name="Time zone").fill("Tokyo")
    page.get_by_role("option", name="Asia/Tokyo").click()
    page.goto("/team?tab=audit")
    utc = page.evaluate("async () => (await (await fetch('/api/v1/audit?limit=1')).json()).data[0].at")
    tokyo = page.evaluate("at => new Date(at).toLocaleTimeString('en-GB', {timeZone: 'Asia/Tokyo'})", utc)
    expect(page.get_by_test_id("audit").get_by_role("row").nth(1)).to_contain_text(tokyo)


def test_an_admin_makes_a_pool_binds_a_team_and_sets_and_lifts_its_quota(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.goto("/admin")
    page.get_by_role("button", name="New pool").click()
    page.get_by_label("Name").fill("Lab 1")
    page.get_by_role("button", name="Create pool").click()
    expect(page.get_by_role("dialog")).to_contain_text("lowercase letters, digits and hyphens")
    page.get_by_label("Name").fill("lab")
    page.get_by_role("button", name="Create pool").click()
    expect(page).to_have_url(re.compile("pool=lab"))
    page.get_by_role("combobox", name="Bind a team").click()
    page.get_by_role("option", name="team").click()
    page.get_by_role("button", name="Quota of team").click()
    page.get_by_label("Nominal slots").fill("4")
    page.get_by_label("Limit").fill("2")
    expect(page.get_by_text("Below the nominal 4 slots")).to_be_visible()
    page.get_by_label("Limit").fill("6")
    expect(page.get_by_test_id("quota-meaning")).to_contain_text("holds at most 6 slots")
    page.get_by_role("button", name="Set quota").click()
    cells = row(page, "pool-teams", "Unbind").get_by_role("cell")
    expect(cells.nth(4)).to_have_text("6")
    page.get_by_role("button", name="Quota of team").click()
    page.get_by_role("button", name="Lift the limit").click()
    page.get_by_role("button", name="Set quota").click()
    expect(cells.nth(4)).to_have_text("none")

    page.get_by_role("button", name="Add a node").click()
    page.get_by_text("CPU only").click()
    page.get_by_role("button", name="Create join token").click()
    expect(page.get_by_test_id("join-command")).to_contain_text("--device cpu")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Unbind team").click()
    confirm(page)
    expect(page.get_by_text("No team may use this pool yet")).to_be_visible()


def test_health_names_each_service_and_dialogs_have_no_accessibility_faults(
    page: Page, admin: Session, log_in: Callable[[], None]
) -> None:
    log_in()
    page.emulate_media(reduced_motion="reduce")
    page.goto("/admin?tab=health")
    for service in ("db", "broker", "store"):
        expect(page.locator(f"[data-service={service}]")).to_contain_text("Works")
    faults = {"/admin?tab=health": accessibility_faults(page)}
    for path, button in (("/team?tab=webhooks", "New webhook"), ("/account", "New token")):
        page.goto(path)
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        for scheme in ("light", "dark"):
            page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
            faults[f"{scheme} {path}"] = accessibility_faults(page)
    assert {place: found for place, found in faults.items() if found} == {}
