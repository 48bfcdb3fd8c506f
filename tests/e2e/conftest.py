"""Browser tests: the built dashboard on a control plane of real processes, in a real Chromium."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from local_stack import dashboard  # noqa: E402
from local_stack.paths import checkout_paths  # noqa: E402
from tests.support.browser import chromium  # noqa: E402
from tests.support.control_plane import ControlPlane  # noqa: E402
from tests.support.databases import new_database  # noqa: E402

ADMIN, PASSWORD = "admin", "only for the browser tests"
_numbers = itertools.count(1)

PATIENCE_MILLISECONDS = 60_000  # of each wait for the page
expect.set_options(timeout=PATIENCE_MILLISECONDS)


@pytest.fixture(scope="session")
def built_dashboard() -> Path:
    """webui/dist, built from the current sources."""
    output: list[str] = []
    if not dashboard.build_if_needed(checkout_paths(ROOT), echo=output.append):
        pytest.fail("the dashboard is not built: " + " ".join(output))
    return ROOT / "webui" / "dist"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def plane(built_dashboard: Path, postgres_url: str, valkey_url: str) -> Iterator[ControlPlane]:
    """A control plane with its own database and broker queue. Its admin has a password."""
    number = next(_numbers)
    database = new_database(postgres_url, f"e2e_{number}")
    folder = Path(tempfile.mkdtemp(prefix="oolong-e2e-"))
    broker, _, _ = valkey_url.rpartition("/")
    plane = ControlPlane(folder, database, f"{broker}/{number}", webui_dist=built_dashboard)
    try:
        plane.prepare()
        set_password = (
            "from control_plane.accounts.models import User; "
            f"user = User.objects.get(username={ADMIN!r}); user.set_password({PASSWORD!r}); user.save()"
        )
        plane.manage("shell", "-c", set_password)
        plane.start()
        yield plane
    finally:
        plane.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def page(browser: Browser, plane: ControlPlane) -> Iterator[Page]:
    """A fresh browser context on the control plane; a page error or a blocked script fails the test."""
    context = browser.new_context(base_url=plane.url, viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text) if "Content Security Policy" in message.text else None,
    )
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def log_in(page: Page, plane: ControlPlane) -> Callable[[], None]:
    def without_the_form() -> None:
        """Opens the run list."""
        request = page.request
        token = request.get("/api/v1/session/csrf").json()["csrf_token"]
        headers = {"X-CSRFToken": token, "Origin": plane.url}
        reply = request.post(
            "/api/v1/session", data={"username": ADMIN, "password": PASSWORD}, headers=headers
        )
        assert reply.ok, reply.text()
        page.goto("/runs")
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()

    return without_the_form
