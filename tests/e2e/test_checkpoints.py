"""The registry of checkpoints, a checkpoint's page, and the playground, on rows of runs that never trained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from oolong.client import Client
from tests.e2e.conftest import ADMIN, PASSWORD
from tests.support import model_files
from tests.support.browser import accessibility_faults
from tests.support.control_plane import ControlPlane
from tests.support.scripted_playground import PlaygroundNode

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MAPPED = ("prompt_column", "answer_column", "completion_column", "split_column")
MANY = 60  # more than a page of the registry
PEOPLE = f"""
from control_plane.accounts.models import Membership, Project, User
for name, role in (("vera", "viewer"), ("erin", "editor")):
    user = User(username=name)
    user.set_password({PASSWORD!r})
    user.save()
    Membership.objects.create(user=user, project=Project.objects.get(), role=role)
"""


@dataclass
class Registry:
    plane: ControlPlane
    client: httpx.Client

    def call(self, method: str, path: str, **body: Any) -> Any:
        reply = self.client.request(method, path, json=body or None)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else None

    def rows(self, call: str) -> None:
        self.plane.manage("shell", "-c", f"from tests.support import registry_rows; registry_rows.{call}")

    def checkpoint(self, run: str, step: int) -> dict[str, Any]:
        found = self.call("GET", f"/checkpoints?run={run}&limit=200")["data"]
        return next(one for one in found if one["step"] == step)


@pytest.fixture(scope="module")
def registry(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A warm start, two runs that follow from it, a run with a long history, the alias best and a gate of prod."""
    with plane.client(plane.token()) as client:
        made = Registry(plane, client)
        fill(made, tmp_path_factory.mktemp("registry"))
        yield made


def fill(registry: Registry, folder: Path) -> None:
    rows = [
        {"prompt": f"a{n} b{n}", "answer": str(2 * n), "completion": str(2 * n), "split": split}
        for n in range(80)
        for split in ("train", "eval")
    ]
    (folder / "letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mapping = {name: name.removesuffix("_column") for name in MAPPED}
    with Client(registry.plane.url, registry.plane.token()) as oolong:
        oolong.datasets.upload(folder / "letters.jsonl", name="letters", mapping=mapping)
        oolong.models.upload(model_files.write(folder / "model"), name="tiny")

    def run(name: str, **sections: Any) -> str:
        spec = {
            "kind": "rl", "name": name, "model": {"base_model": "tiny"}, "dataset": {"version": "letters@1"},
            "notes": "rows of a test, nothing was trained", **sections,
        }  # fmt: skip
        return str(registry.call("POST", "/runs", spec=spec)["id"])

    names = {
        "warm_start": run("letters start", kind="sft"),
        "first": run("letters"),
        "second": run("letters again"),
    }
    given = ", ".join(f"{key}={value!r}" for key, value in names.items())
    registry.rows(f"fill({given})")
    registry.rows(f"fill_many({run('long history')!r}, {MANY})")
    registry.plane.manage("shell", "-c", PEOPLE)
    registry.call("PUT", "/checkpoint-aliases/best", checkpoint="letters@60")
    gate = {"dataset": {"version": "letters@1", "split": "eval"}, "evaluation": {"prompts": 64}}
    registry.call(
        "POST", "/checkpoint-gates", alias="prod", spec=gate, assertions=["eval/accuracy_low >= 0.7"]
    )


@pytest.fixture
def opens(page: Page) -> Callable[..., None]:
    """Open a page as a user."""

    def open_as(name: str, path: str) -> None:
        page.context.clear_cookies()
        page.goto(f"/login?next={path}")
        page.get_by_label("Username").fill(name)
        page.locator("input[name=password]").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()

    return open_as


def rows(page: Page) -> Any:
    return page.get_by_test_id("checkpoints").locator("tbody tr")


def check_both_themes(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    for scheme in ("light", "dark"):
        page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
        assert accessibility_faults(page) == [], scheme


def test_filters_and_pages_of_the_registry_are_in_the_url(
    page: Page, opens: Callable[..., None], registry: Registry
) -> None:
    opens(ADMIN, "/checkpoints")
    expect(page).to_have_title("Checkpoints · Oolong")
    expect(rows(page)).to_have_count(50)
    page.get_by_role("button", name="Older").click()
    expect(page).to_have_url(re.compile("cursor="))
    expect(rows(page)).to_have_count(MANY + 7 - 50)
    page.get_by_label("Run", exact=True).fill("letters")
    expect(page).to_have_url(re.compile(r"\?run=letters$"))
    expect(rows(page)).to_have_count(4)
    page.get_by_role("radiogroup").get_by_text("Deleted", exact=True).click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page).locator("[data-status=DELETED]")).to_be_visible()
    page.goto("/checkpoints?alias=best")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("letters, step 60")
    expect(rows(page)).to_contain_text("eval accuracy 0.780")
    page.goto("/checkpoints?run=nobody")
    expect(page.get_by_text("No matching checkpoints")).to_be_visible()
    page.goto("/checkpoints")
    expect(page.get_by_test_id("aliases")).to_contain_text("eval/accuracy_low >= 0.7")
    check_both_themes(page)


def test_a_viewer_sees_the_registry_and_changes_nothing(
    page: Page, opens: Callable[..., None], registry: Registry
) -> None:
    opens("vera", "/checkpoints")
    expect(page.get_by_test_id("aliases")).to_contain_text("best")
    expect(rows(page)).to_have_count(50)
    for name in ("Set an alias", "Set a policy"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("Actions on the alias"))).to_have_count(0)
    page.get_by_role("button", name="Actions on long history, step 60").click()
    expect(page.get_by_role("menuitem")).to_have_text(["Download"])
    page.goto(f"/checkpoints/{registry.checkpoint('letters', 60)['id']}")
    expect(page.get_by_test_id("files")).to_be_visible()
    for role, name in (
        ("button", "Pin"),
        ("link", "Start a run from it"),
        ("link", "Open in the playground"),
    ):
        expect(page.get_by_role(role, name=name)).to_have_count(0)  # type: ignore[arg-type]
    page.goto("/playground")
    expect(page.get_by_text("lacks the permission runs:write")).to_be_visible()


def test_an_alias_moves_through_its_gate_or_by_an_override_that_stays_visible(
    page: Page, opens: Callable[..., None], registry: Registry
) -> None:
    dialog, prod = page.get_by_role("dialog"), page.locator("[data-alias=prod]")

    def begin(item: str, reference: str) -> None:
        page.get_by_role("button", name="Actions on the alias prod").click()
        page.get_by_role("menuitem", name=re.compile(f"^{item}")).click()
        dialog.get_by_label("Checkpoint").fill(reference)

    opens("erin", "/checkpoints")
    begin("Set", "letters@60")
    expect(dialog.get_by_test_id("gate")).to_contain_text("A role with checkpoints:admin")
    expect(dialog.get_by_test_id("confirm-set-alias")).to_be_disabled()
    expect(dialog.get_by_label("Override the gate of prod")).to_have_count(0)
    dialog.get_by_role("button", name="Run the gate's evaluation").click()
    expect(dialog.locator("[data-status=pending]")).to_be_visible()
    run = dialog.get_by_role("link", name="its evaluation").get_attribute("href")
    assert run is not None
    registry.rows(f"pass_gate({run.removeprefix('/runs/')!r}, low=0.82)")
    expect(dialog.locator("[data-status=passed]")).to_contain_text("0.820 holds")
    dialog.get_by_test_id("confirm-set-alias").click()
    expect(prod).to_contain_text("letters, step 60")
    expect(prod.locator("[data-status=passed]")).to_be_visible()

    opens(ADMIN, "/checkpoints")
    begin("Move", "letters@40")
    expect(dialog.locator("[data-status=missing]")).to_be_visible()
    dialog.get_by_label("Override the gate of prod").check()
    dialog.get_by_role("button", name="Override the gate and move").click()
    expect(prod).to_contain_text("admin overrode its gate")
    expect(prod).to_contain_text("letters, step 40")


def test_a_checkpoint_shows_where_it_comes_from_and_the_ways_out(
    page: Page, opens: Callable[..., None], registry: Registry
) -> None:
    found = registry.checkpoint("letters", 60)
    opens(ADMIN, f"/checkpoints/{found['id']}")
    expect(page).to_have_title("letters, step 60 · Oolong")
    lineage = page.get_by_test_id("lineage")
    for kind in ("base_model", "dataset_version", "run", "checkpoint"):
        expect(lineage.locator(f"[data-kind={kind}]").first).to_be_visible()
    expect(lineage.locator("[data-focus=true]")).to_contain_text("letters step 60")
    expect(page.get_by_test_id("aliases-here")).to_contain_text("best")
    expect(page.get_by_test_id("files")).to_contain_text("hf/model.safetensors")
    expect(page.get_by_test_id("export")).to_contain_text(
        f"oolong checkpoint export {found['id']} letters-step-60"
    )
    page.get_by_role("button", name="Create a link").click()
    command = page.get_by_test_id("link").locator("pre").inner_text()
    link = re.search(r"http://\S+", command)
    assert link is not None
    part = httpx.get(link[0], headers={"Range": "bytes=0-9"}, trust_env=False)
    assert (part.status_code, len(part.content)) == (206, 10)
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    assert registry.checkpoint("letters", 60)["pinned"]
    expect(page.get_by_label("Model card", exact=True)).to_contain_text("# letters, step 60")
    check_both_themes(page)
    lineage.get_by_role("link", name="letters again step 20").click()
    expect(page.get_by_role("heading", level=1, name="letters again, step 20")).to_be_visible()
    expect(page.get_by_test_id("export").nth(1)).to_contain_text("--merged")
    page.get_by_role("link", name="Start a run from it").click()
    expect(page.get_by_role("heading", level=1, name="Start another like it")).to_be_visible()


def test_retention_deletes_what_its_preview_says(
    page: Page, opens: Callable[..., None], registry: Registry
) -> None:
    opens(ADMIN, "/checkpoints")
    page.get_by_role("button", name="Set a policy").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Without a rule nothing is deleted.")
    dialog.get_by_label("Newest of each run").fill("58")
    dialog.get_by_label("Deletes").click()
    page.get_by_role("option", name="Training states only").click()
    expect(dialog.get_by_test_id("plan")).to_contain_text("2 checkpoints of ")
    dialog.get_by_test_id("save-retention").click()
    expect(page.get_by_test_id("retention")).to_contain_text("the newest 58 of each run")
    assert registry.checkpoint("long history", 1)["state"] == "STORED", "saving a policy deletes nothing"
    page.get_by_role("button", name="Preview what it deletes").click()
    expect(dialog).to_contain_text("This cannot be undone")
    check_both_themes(page)
    dialog.get_by_role("button", name=re.compile("^Delete 2 checkpoints, ")).click()
    expect(page.get_by_text("2 checkpoints deleted")).to_be_visible()
    gone = registry.call("GET", "/checkpoints?run=long history&state=DELETED")["data"]
    assert sorted(one["step"] for one in gone) == [1, 2]


@pytest.fixture
def node(registry: Registry, tmp_path: Path) -> Iterator[PlaygroundNode]:
    token = registry.plane.manage("join_token").splitlines()[-1]
    node = PlaygroundNode(registry.plane.url, token, slots=2, folder=tmp_path)
    node.start()
    yield node
    node.close()


def test_two_checkpoints_answer_side_by_side_with_their_rewards_until_they_are_stopped(
    page: Page, opens: Callable[..., None], registry: Registry, node: PlaygroundNode
) -> None:
    first, second = registry.checkpoint("letters", 60)["id"], registry.checkpoint("letters start", 60)["id"]
    opens(ADMIN, f"/playground?checkpoint={first}%26checkpoint={second}")
    page.get_by_role("button", name="Open playground").click()
    expect(page.get_by_test_id("slot")).to_have_count(2)
    for side in (0, 1):
        expect(page.get_by_test_id("slot").nth(side)).to_contain_text("On scripted-node cpu-")
        expect(page.get_by_test_id("slot").nth(side)).to_contain_text("without a message")
    page.get_by_label("Expected answer").fill("You wrote: a1 b2")
    message = page.get_by_label("Message", exact=True)
    message.fill("a1 b2")
    message.press("Enter")
    for side in (0, 1):
        expect(page.get_by_test_id("turns").nth(side)).to_contain_text("You wrote: a1 b2")
        expect(page.get_by_test_id("score").nth(side)).to_have_text(re.compile(r"^reward 1\b"))
    message.fill("again")
    message.press("Enter")
    expect(page.get_by_test_id("score").nth(3)).to_have_text(re.compile(r"^reward 0\b"))
    check_both_themes(page)
    page.get_by_test_id("close-playground").click()
    page.get_by_test_id("confirm-close").click()
    expect(page.get_by_test_id("side-notice")).to_have_count(2)
    expect(page.get_by_test_id("side-notice").first).to_contain_text("The slot is released.")
    expect(page.get_by_test_id("turns").first).to_contain_text("You wrote: again")
    again = page.get_by_role("link", name="Open it again")
    expect(again).to_have_attribute("href", f"/playground?checkpoint={first}&checkpoint={second}")
