"""Functions: an upload with errors at their lines, versions, and a reward's test with its report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from oolong.client import Client
from tests.e2e.conftest import PASSWORD
from tests.support import model_files
from tests.support.browser import accessibility_faults
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.browser, pytest.mark.slow]

REWARD = "def score(prompt, completion, answer, *, half_at=10.0):\n    return float(answer in completion)\n"
REPORT = {
    "rows": 2, "calls": 20, "sources": {}, "zero_variance_frac": None, "result": "red",
    "determinism": {"checked": 10, "differing": 0, "examples": []},
    "latency_seconds": {"p50": 0.001, "p95": 0.02, "max": 0.5},
    "exceptions": {"count": 1, "share": 0.05, "examples": [
        {"row": 1, "source": "empty", "completion": "", "error": "ValueError: no number"}]},
    "range": {"min": 0.0, "max": 1.0, "mean": 0.5, "distinct": 2, "scored": 19, "model_mean": None},
    "probes": {
        "empty": {"tried": 2, "scored": 1, "mean": 0.0, "max": 0.0, "success_frac": 0.0, "example": None},
        "echo": {"tried": 2, "scored": 2, "mean": 1.0, "max": 1.0, "success_frac": 1.0,
                 "example": {"row": 0, "source": "echo", "completion": "What is <b>2+2</b>?"}},
    },
    "reasons": [{"level": "red", "code": "probe_echo", "message": "the probe 'echo' succeeds on 100% of the rows"}],
}  # fmt: skip
END = """
import json
from control_plane.accounts.models import Membership, Project, User
from control_plane.experiments.models import RewardTest
from control_plane.runs.models import Run
test = RewardTest.objects.get(pk={test!r})
RewardTest.objects.filter(pk=test.pk).update(report=json.loads({report!r}), result="red")
Run.objects.filter(pk=test.run_id).update(status="SUCCEEDED")
user = User(username="vera")
user.set_password({password!r})
user.save()
Membership.objects.create(user=user, project=Project.objects.get(), role="viewer")
"""


@pytest.fixture(scope="module")
def test_id(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An ended test of close@1 with a report. There is no node, so every other test waits. Vera is a viewer."""
    folder = tmp_path_factory.mktemp("functions")
    rows = "".join(json.dumps({"q": f"What is {n}+{n}?", "a": str(2 * n)}) + "\n" for n in range(40))
    (folder / "sums.jsonl").write_text(rows)
    token = plane.token()
    with Client(plane.url, token) as oolong:
        oolong.datasets.upload(
            folder / "sums.jsonl", name="sums", mapping={"prompt_column": "q", "answer_column": "a"}
        )
        oolong.models.upload(model_files.write(folder / "model"), name="tiny")
    with plane.client(token) as api:
        uploaded = {"name": "close", "kind": "reward", "source": REWARD}
        api.post("/functions", json=uploaded).raise_for_status()
        body = {"dataset": "sums@1", "model": "tiny", "reward": {"function": "close@1"}}
        made = api.post("/reward-tests", json=body)
        made.raise_for_status()
    test = str(made.json()["id"])
    plane.manage("shell", "-c", END.format(test=test, report=json.dumps(REPORT), password=PASSWORD))
    return test


def test_a_reward_starts_from_a_template_and_errors_are_at_their_line(
    page: Page, log_in: Callable[[], None], test_id: str
) -> None:
    log_in()
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("heading", level=1, name="Functions")).to_be_visible()
    page.get_by_role("link", name="New function").click()
    editor = page.get_by_test_id("source-editor")
    template = editor.input_value()
    assert template.count("def score(") == 1
    page.get_by_test_id("function-name").fill("last-number")
    editor.fill("import numpy\n" + template)
    page.get_by_test_id("upload-function").click()
    errors = page.get_by_test_id("source-errors")
    expect(errors).to_contain_text("the sandbox has no module 'numpy'")
    errors.get_by_role("button", name="Line 1").click()
    expect(editor).to_be_focused()
    page.keyboard.press("Delete")  # the line is selected
    page.get_by_test_id("upload-function").click()
    expect(page.get_by_role("heading", level=1, name="last-number")).to_be_visible()
    expect(page.get_by_test_id("source")).to_contain_text("def score(")
    expect(page.get_by_text("No run uses it yet")).to_be_visible()

    page.get_by_role("link", name="New version").click()
    expect(editor).to_have_value(re.compile("def score"))
    page.get_by_role("button", name="Upload last-number@2").click()
    expect(page.get_by_text("Nothing changed: last-number@1 has this source.")).to_be_visible()
    page.get_by_role("link", name="New version").click()
    editor.fill(f"# a second version\n{template}")
    page.get_by_role("button", name="Upload last-number@2").click()
    expect(page.get_by_role("heading", level=2, name="Source of last-number@2")).to_be_visible()
    expect(page).to_have_url(re.compile(r"version=2$"))


def test_a_report_explains_its_findings_and_leads_to_a_run(
    page: Page, log_in: Callable[[], None], test_id: str
) -> None:
    log_in()
    page.goto("/functions?show=tests")
    page.get_by_test_id("reward-tests").get_by_role("link", name="Red test of close@1 on sums@1").click()
    expect(page.get_by_test_id("findings")).to_contain_text("Make the reward look for one answer")
    probes = page.get_by_test_id("probes")
    expect(probes.get_by_role("row", name=re.compile("^Echo"))).to_contain_text("What is <b>2+2</b>?")
    expect(probes.get_by_role("row", name=re.compile("^Empty"))).to_contain_text("The reward is not fooled")
    expect(page.get_by_test_id("test-figures")).to_contain_text("20 ms")
    expect(page.get_by_text("ValueError: no number")).to_be_visible()
    expect(page.get_by_test_id("spec-snippet")).to_have_text("reward:\n  function: close@1\n")
    page.locator("main").get_by_role("link", name="Start a run").click()
    page.wait_for_url(re.compile(r"/runs/new\?dataset=sums%401&model=.+&reward=.+close%401"))
    expect(page.get_by_role("heading", level=1, name="Start a run")).to_be_visible()
    page.goto(f"{page.url}&view=yaml")
    expect(page.get_by_test_id("spec-text")).to_have_value(re.compile("function: close@1"))


def test_a_test_says_what_it_does_and_waits_visibly(
    page: Page, log_in: Callable[[], None], test_id: str
) -> None:
    log_in()
    page.goto("/functions/tests/new?reward=close@1&dataset=sums@1")
    plan = page.get_by_test_id("test-plan")
    expect(plan).to_contain_text("Scores 256 completions twice each: 32 rows × 6 probes and 64 samples.")
    page.get_by_test_id("start-test").click()
    expect(page.get_by_text("Choose the model whose chat template")).to_be_visible()
    page.get_by_text("Probes only", exact=True).click()
    expect(plan).to_contain_text("no slot")
    page.get_by_test_id("test-weights").click()
    page.get_by_role("option", name="tiny@1").click()
    page.get_by_role("textbox", name="Options").fill('{"half_at": 5}')
    page.get_by_test_id("start-test").click()
    expect(page.get_by_role("heading", level=1, name="Test of close@1")).to_be_visible()
    expect(page.get_by_test_id("test-progress")).to_contain_text(re.compile("Queued"))
    page.get_by_role("link", name="Test again").click()
    expect(page.get_by_role("textbox", name="Options")).to_have_value('{"half_at":5}')
    page.get_by_role("textbox", name="Options").fill('{"half": 5}')
    page.get_by_test_id("start-test").click()
    expect(page.get_by_role("textbox", name="Options")).to_have_attribute("aria-invalid", "true")


def test_no_page_of_functions_has_accessibility_faults(
    page: Page, log_in: Callable[[], None], test_id: str, plane: ControlPlane
) -> None:
    with plane.client(plane.token("functions")) as api:
        function = next(one for one in api.get("/functions").json()["data"] if one["name"] == "close")
    log_in()
    page.emulate_media(reduced_motion="reduce")
    faults: list[str] = []
    for path in (f"/functions/{function['id']}", "/functions?show=tests", f"/functions/tests/{test_id}"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text(re.compile("^Loading"))).to_have_count(0)
        for scheme in ("light", "dark"):
            page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
            faults += [f"{scheme} {path}: {fault}" for fault in accessibility_faults(page)]
    assert faults == [], "\n".join(faults)


def test_a_viewer_reads_functions_and_changes_none(page: Page, test_id: str) -> None:
    page.goto("/functions")
    page.get_by_label("Username").fill("vera")
    page.locator("input[name=password]").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_test_id("functions").get_by_role("link", name="close", exact=True).click()
    expect(page.get_by_test_id("source")).to_contain_text("def score")
    for name in ("New version", "Test this reward", "New function"):
        expect(page.get_by_role("link", name=name)).to_have_count(0)
    page.goto("/functions/new")
    expect(page.get_by_role("note")).to_contain_text("viewer")
    expect(page.get_by_test_id("upload-function")).to_be_disabled()
