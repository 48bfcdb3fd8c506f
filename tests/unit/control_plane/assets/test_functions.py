"""Versioned source of users: what is taken, what is refused, and that it reaches the node unchanged."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from control_plane.assets.functions.function_source import read_source
from control_plane.assets.models import FunctionVersion
from control_plane.fleet import pools
from oolong.contracts import user_code
from oolong.contracts.agent import JobIsolation
from oolong.contracts.user_code import ENTRY_POINTS, MAX_SOURCE_BYTES, SourceKind
from tests.support.pages import block

REWARD = "def score(prompt, completion, answer, *, weight=1.0):\n    return weight * (answer in completion)\n"
LOSS = "def loss(inputs, settings, *, slope=1.0):\n    return None\n"


def upload(person: Any, source: str = REWARD, *, name: str = "contains", kind: str = "reward") -> Any:
    return person.post("/functions", {"name": name, "kind": kind, "source": source})


@pytest.fixture
def runnable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that can run every kind."""
    monkeypatch.setattr(user_code, "RUNNABLE_KINDS", frozenset(SourceKind))


def test_a_file_becomes_a_version_that_keeps_every_byte(alice: Any) -> None:
    source = "# é\r\n" + REWARD
    made = upload(alice, source)
    assert made.status_code == 201, made.content
    version = made.json()
    assert (version["ref"], version["kind"]) == ("contains@1", "reward")
    assert (version["options"], version["any_option"]) == (["weight"], False)
    assert version["sha256"] == hashlib.sha256(source.encode()).hexdigest()
    assert alice.get(f"/function-versions/{version['id']}/source").content == source.encode()


def test_new_source_is_a_new_version_and_old_source_the_version_that_has_it(alice: Any) -> None:
    first = upload(alice).json()
    second = upload(alice, REWARD + "\n")
    again = upload(alice)
    assert (second.status_code, second.json()["ref"]) == (201, "contains@2")
    assert (again.status_code, again.json()) == (200, first)
    function = alice.get("/functions?kind=reward").json()["data"][0]
    assert [version["number"] for version in function["versions"]] == [2, 1]
    assert alice.get("/function-versions/resolve?ref=contains@latest").json()["number"] == 2
    assert alice.get("/function-versions/resolve?ref=contains@3").status_code == 404
    assert alice.get("/functions?kind=loss").json()["data"] == []
    assert alice.get("/functions?kind=verse").status_code == 422


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("def score(prompt, completion, answer)\n    return 1\n", "syntax", "line 1"),
        ("def reward(prompt, completion, answer):\n    return 1\n", "no_entry_point", "score(prompt, completion"),
        ("class A:\n    def score(prompt, completion, answer): ...\n", "no_entry_point", "top level"),
        ("def score(prompt, answer):\n    return 1\n", "wrong_signature", "(prompt, answer)"),
        ("def score(completion, prompt, answer):\n    return 1\n", "wrong_signature", "must begin with"),
        ("def score(*arguments):\n    return 1\n", "wrong_signature", "must begin with"),
        ("def score(prompt, completion, answer, k):\n    return 1\n", "option_without_default", "k"),
        ("def score(prompt, completion, answer, *, k):\n    return 1\n", "option_without_default", "k"),
        ("def score(prompt, completion, answer, /):\n    return 1\n", "positional_only", "by name"),
        ("async def score(prompt, completion, answer):\n    return 1\n", "wrong_form", "must be `def`"),
        ("-" * 200_000 + "1", "syntax", "cannot parse"),
        ("x." * 100_000 + "x", "syntax", "cannot parse"),
        ("[" * 200_000, "syntax", "parenthes"),
        ("#" * (MAX_SOURCE_BYTES + 1), "too_large", str(MAX_SOURCE_BYTES)),
    ],
)  # fmt: skip
def test_source_without_its_entry_point_is_refused_with_its_line(
    alice: Any, source: str, code: str, says: str
) -> None:
    reply = upload(alice, source)
    assert (reply.status_code, reply.json()["code"]) == (422, "source_invalid"), reply.content
    fault = reply.json()["errors"][0]
    assert (fault["pointer"], fault["code"]) == ("/source", code)
    assert says in fault["message"]
    assert not FunctionVersion.objects.exists()


def test_uploaded_source_is_never_run(alice: Any, tmp_path: Any) -> None:
    mark = tmp_path / "ran"
    source = f"open({str(mark)!r}, 'w')\nraise SystemExit\n" + REWARD
    assert upload(alice, source).status_code == 201
    assert not mark.exists()


@pytest.mark.parametrize("kind", list(SourceKind))
def test_the_documented_signature_of_every_kind_is_taken(kind: SourceKind) -> None:
    entry = ENTRY_POINTS[kind]
    parameters = ", ".join(entry.parameters)
    forms = {False: "def", True: "async def"}
    taken = f"{forms[entry.is_async]} {entry.name}({parameters}, **options): ..."
    refused = f"{forms[not entry.is_async]} {entry.name}({parameters}): ..."
    assert read_source(kind, taken).errors == []
    assert [error.code for error in read_source(kind, refused).errors] == ["wrong_form"]


def test_a_name_or_a_file_that_cannot_be_taken_is_said_in_words(alice: Any) -> None:
    refused = upload(alice, "", name="Not a name!")
    messages = {error["pointer"]: error["message"] for error in refused.json()["errors"]}
    assert messages == {
        "/name": "'Not a name!' is no name here: letters, digits and . _ - beginning with a letter or digit",
        "/source": "the file is empty; it must define the function of its kind",
    }


def test_a_name_belongs_to_one_kind(alice: Any) -> None:
    upload(alice)
    reply = upload(alice, "async def run(episode): ...", kind="workflow")
    assert (reply.status_code, reply.json()["code"]) == (409, "name_taken")


@pytest.mark.parametrize(
    ("before", "code", "says"),
    [
        ("import os\n", "import_not_allowed", "line 1: a loss may import"),
        ("from urllib.request import urlopen\n", "import_not_allowed", "not urllib.request"),
        ("from . import other\n", "import_not_allowed", "line 1"),
        ("import math\nprint('hello')\n", "import_effect", "line 2: expr at the top level"),
        ("import torch\nTABLE = torch.zeros(3)\n", "import_effect", "line 2: `torch.zeros(3)`"),
        ("if True:\n    pass\n", "import_effect", "line 1: if at the top level"),
        ("def f(x=open('/etc/passwd')): ...\n", "import_effect", "open('/etc/passwd')"),
        ("import functools\n@functools.cache\ndef f(): ...\n@f()\ndef g(): ...\n", "import_effect", "line 4"),
        ("def f(x: print('x')): ...\n", "import_effect", "line 1"),
        ("class A:\n    x = [1 for _ in range(3)]\n", "import_effect", "line 2"),
        ("import torch\ntorch.softmax = None\n", "changes_import", "line 2: `torch.softmax`"),
        ("import torch.nn.functional as F\nclass A:\n    F.relu = 1\n", "changes_import", "line 3: `F.relu`"),
        ("import torch\ntorch.__dict__['exp'], x = 1, 2\n", "changes_import", "line 2"),
        ("from torch import nn\ndef f():\n    nn.Linear.forward = f\n", "changes_import", "`nn.Linear.forward`"),
        ("import torch\ndef f():\n    del torch.exp\n", "changes_import", "line 3: `torch.exp`"),
        ("import torch\ndef f():\n    setattr(torch, 'exp', f)\n", "changes_import", "line 3: `setattr(torch"),
        ("import torch\ndef f():\n    for torch.exp in (1, 2): ...\n", "changes_import", "line 3"),
    ],
)  # fmt: skip
def test_a_loss_that_would_do_something_at_import_is_refused(before: str, code: str, says: str) -> None:
    fault = read_source(SourceKind.LOSS, before + LOSS).errors[0]
    assert fault.code == code and says in fault.message
    of_reward = {fault.code for fault in read_source(SourceKind.REWARD, before + REWARD).errors}
    assert of_reward <= {"not_in_sandbox"}, "a reward may do at import what its sandbox allows"


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (
            "import numpy as np\n",
            "line 1: the sandbox has no module 'numpy'; it has Python's standard library. Write",
        ),
        ("import os, requests.adapters\n", "line 1: the sandbox has no module 'requests.adapters'"),
        ("import jsom\n", "did you mean 'json'?"),
        ("from . import other\n", "line 1: . is a relative import, and the file stands alone"),
        ("from oolong.workflow import Episode\n", "the sandbox has no module 'oolong.workflow'"),
        ("def later():\n    import torch\n", "line 2: the sandbox has no module 'torch'"),
        (
            "try:\n    import torch\nexcept ValueError:\n    pass\n",
            "line 2: the sandbox has no module 'torch'",
        ),
    ],
)
def test_an_import_that_the_sandbox_lacks_is_refused_with_its_line(before: str, says: str) -> None:
    (fault,) = read_source(SourceKind.REWARD, before + REWARD).errors
    assert fault.code == "not_in_sandbox" and says in fault.message, fault.message


@pytest.mark.parametrize(
    "before",
    [
        "import collections.abc, re\nfrom concurrent import futures\n",
        "try:\n    import numpy\nexcept (ImportError, OSError):\n    numpy = None\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
    ],
)
def test_imports_that_the_sandbox_has_or_the_file_does_without_are_taken(before: str) -> None:
    assert read_source(SourceKind.REWARD, before + REWARD).errors == []


def test_a_workflow_may_import_the_words_of_its_episode() -> None:
    source = "from oolong.workflow import OutOfRoom\nasync def run(episode):\n    return 1.0\n"
    assert read_source(SourceKind.WORKFLOW, source).errors == []


def test_a_missing_function_and_a_missing_module_are_said_at_once() -> None:
    faults = read_source(SourceKind.REWARD, "import numpy\nimport pandas\n").errors
    assert [fault.code for fault in faults] == ["no_entry_point", "not_in_sandbox", "not_in_sandbox"]


def test_a_loss_may_define_what_it_needs() -> None:
    source = (
        '"""Doc."""\nfrom __future__ import annotations\nfrom dataclasses import dataclass\nimport torch\n'
        "from trainers.algorithms.losses import LossInputs, LossOutputs\nLIMIT: float = 2.0\n"
        "@dataclass(frozen=True)\nclass Range:\n    low: float = -1.0\n"
        "class Seen:\n    count = 0\nSEEN = {}\nSEEN['a'] = Seen.count\nSeen.count = 1\n"
        "def bounded(x: torch.Tensor) -> torch.Tensor:\n    x.best, x[0] = 1, 2\n    return x.clamp(max=LIMIT)\n"
    )
    facts = read_source(SourceKind.LOSS, source + LOSS)
    assert (facts.errors, facts.options) == ([], ["slope"])


@pytest.mark.parametrize("kind", ["verse", ""])
def test_an_unknown_kind_is_refused(alice: Any, kind: str) -> None:
    assert upload(alice, kind=kind).status_code == 422


def test_a_loss_runs_only_in_a_pool_whose_trainers_take_code(alice: Any, person: Any) -> None:
    assert upload(alice, LOSS, name="mine", kind="loss").status_code == 201
    spec = {"algorithm": {"loss_function": "mine@1"}}
    assert faults(alice, **spec) == {"/algorithm/loss_function": "trainer_code_off"}
    pools.create_pool("lab", all_teams=True, trainer_code=True)
    refused = alice.post("/runs/validate", {"spec": alice.spec(**spec)}).json()["errors"][0]["message"]
    assert "pool 'default' does not allow" in refused and "use placement.pool: lab" in refused
    assert faults(alice, **spec, placement={"pool": "lab"}) == {}


def test_only_an_admin_of_the_installation_allows_code_in_trainers_and_it_is_written_down(
    alice: Any, person: Any
) -> None:
    assert alice.call("PATCH", "/pools/default", {"trainer_code": True}).status_code == 403, "a pool admin"
    alice.user.is_staff = True
    alice.user.save()
    for allowed in (True, True, False):
        changed = alice.call("PATCH", "/pools/default", {"trainer_code": allowed})
        assert (changed.status_code, changed.json()["trainer_code"]) == (200, allowed)
    entries = alice.get("/audit?action=pool.change").json()["data"]
    assert [entry["data"]["trainer_code"] for entry in entries] == [
        {"before": True, "after": False}, {"before": False, "after": True},
    ]  # fmt: skip
    assert alice.call("PATCH", "/pools/default", {"trainer_cod": True}).status_code == 422
    assert alice.call("PATCH", "/project", {"trainer_code": True}).status_code == 422


def test_the_loss_of_the_how_to_is_taken() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "algorithm.md"
    facts = read_source(SourceKind.LOSS, block(page, "python"))
    assert (facts.errors, facts.options) == ([], ["ceiling"])


# --- in a run ---------------------------------------------------------------------------------------------


SCORED = {"split": "eval", "prompts": 8}


def faults(alice: Any, **changes: Any) -> dict[str, str]:
    reply = alice.post("/runs/validate", {"spec": alice.spec(**changes)})
    return {error["pointer"]: error["code"] for error in reply.json()["errors"]}


@pytest.mark.usefixtures("runnable")
def test_a_run_pins_the_version_and_its_node_gets_the_very_file(
    alice: Any, node: Any, start: Any, person: Any
) -> None:
    version = upload(alice).json()
    machine = node()
    run = start(machine, reward={"function": "contains@latest", "options": {"weight": 2.0}})
    assert run["spec"]["reward"]["function"] == "contains@1"
    upload(alice, REWARD + "# later\n")
    (attempt,) = machine.beat().attempts
    assert attempt.spec["reward"]["function"] == "contains@1"
    artifact = attempt.sources["reward"]
    assert (artifact.kind, artifact.sha256, set(attempt.sources)) == ("source", version["sha256"], {"reward"})
    got = machine.get(f"/artifacts/{artifact.sha256}")
    assert b"".join(got.streaming_content) == REWARD.encode()
    assert node("node-2").get(f"/artifacts/{artifact.sha256}").status_code == 404


@pytest.mark.usefixtures("runnable")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reward": {"function": "none@1"}}, {"/reward/function": "unknown_function"}),
        ({"reward": {"function": "contains@2"}}, {"/reward/function": "unknown_function"}),
        ({"workflow": {"function": "contains@1"}}, {"/workflow/function": "wrong_kind"}),
        ({"reward": {"function": "contains@1", "options": {"wait": 1}}}, {"/reward/options": "unknown_option"}),
        ({"reward": {"name": "math", "function": "contains@1"}}, {"/reward/function": "two_rewards"}),
        ({"algorithm": {"loss_function": "mine@1"}}, {"/algorithm/loss_function": "trainer_code_off"}),
        ({"reward": {"function": "contains"}}, {}),
        ({"evaluation": {**SCORED, "reward": {"function": "contains@1"}}}, {}),
        ({"evaluation": {**SCORED, "reward": {"function": "none@1"}}},
         {"/evaluation/reward/function": "unknown_function"}),
        ({"evaluation": {**SCORED, "reward": {"function": "mine@1"}}}, {"/evaluation/reward/function": "wrong_kind"}),
        ({"evaluation": {**SCORED, "reward": {"function": "contains@1", "options": {"wait": 1}}}},
         {"/evaluation/reward/options": "unknown_option"}),
        ({"algorithm": {"loss_function": "mine@1", "options": {"slop": 1.0}}},
         {"/algorithm/options": "unknown_option", "/algorithm/loss_function": "trainer_code_off"}),
    ],
)  # fmt: skip
def test_what_a_spec_says_of_a_function_must_hold(
    alice: Any, changes: dict[str, Any], expected: dict[str, str]
) -> None:
    upload(alice)
    upload(alice, LOSS, name="mine", kind="loss")
    assert faults(alice, **changes) == expected


def test_an_evaluation_may_be_scored_by_another_uploaded_function(alice: Any, node: Any, start: Any) -> None:
    first = upload(alice).json()
    second = upload(alice, REWARD + "# stricter\n").json()
    machine = node()
    own = {**SCORED, "reward": {"function": "contains@latest"}}
    run = start(machine, reward={"function": "contains@1"}, evaluation=own)
    assert run["spec"]["evaluation"]["reward"]["function"] == "contains@2"
    (attempt,) = machine.beat().attempts
    assert {name: source.sha256 for name, source in attempt.sources.items()} == {
        "reward": first["sha256"], "evaluation_reward": second["sha256"],
    }  # fmt: skip
    for source in attempt.sources.values():
        assert machine.get(f"/artifacts/{source.sha256}").status_code == 200


def test_a_loss_reaches_the_node_of_its_run(alice: Any, node: Any, start: Any) -> None:
    pools.change_pool(pools.default_pool(), trainer_code=True)
    version = upload(alice, LOSS, name="mine", kind="loss").json()
    machine = node()
    run = start(machine, algorithm={"loss_function": "mine@latest", "options": {"slope": 2.0}})
    assert run["spec"]["algorithm"]["loss_function"] == "mine@1"
    (attempt,) = machine.beat().attempts
    assert attempt.sources["loss"].sha256 == version["sha256"]


def test_a_loss_waits_for_a_node_that_isolates_jobs(alice: Any, node: Any, tick: Any) -> None:
    pools.change_pool(pools.default_pool(), trainer_code=True)
    upload(alice, LOSS, name="mine", kind="loss")
    machine = node()
    machine.job_isolation = JobIsolation.NONE
    machine.beat()
    run = alice.run(algorithm={"loss_function": "mine@1", "options": {"slope": 2.0}})
    tick()
    assert machine.beat().attempts == []
    assert "no node isolates jobs" in alice.see(run["id"])["pending_reason"]
    (shown,) = alice.call("GET", "/pool").json()["nodes"]
    assert shown["job_isolation"] == "none"


def test_a_kind_that_no_node_can_run_is_refused_for_now(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "RUNNABLE_KINDS", frozenset({SourceKind.WORKFLOW}))
    upload(alice)
    upload(alice, "async def run(episode): ...", name="chat", kind="workflow")
    found = faults(alice, reward={"function": "contains@1"}, workflow={"function": "chat@1"})
    assert found == {"/reward/function": "not_supported_yet"}


def test_a_function_of_another_team_does_not_exist_for_a_run(alice: Any, person: Any) -> None:
    upload(alice)
    charlie = person("charlie", team="blue")
    assert faults(charlie, reward={"function": "contains@1"})["/reward/function"] == "unknown_function"


# --- the command ------------------------------------------------------------------------------------------


def test_the_command_uploads_lists_shows_and_downloads(oolong: Any) -> None:
    Path("mine.py").write_text(REWARD)
    assert oolong("function", "upload", "mine.py", "--name", "mine", "--kind", "reward").out == "mine@1\n"
    assert oolong("function", "list", "--kind", "reward").out.startswith("mine\treward\tmine@1\t")
    shown = oolong("function", "get", "mine@latest").out
    assert "weight" in shown and "def score(prompt, completion, answer" in shown
    assert oolong("function", "download", "mine@1", "-o", "copy.py").code == 0
    assert Path("copy.py").read_text() == REWARD


def test_the_command_says_what_is_wrong_and_exits_2(oolong: Any) -> None:
    Path("bad.py").write_text("def score(answer): ...")
    done = oolong("function", "upload", "bad.py", "--name", "bad", "--kind", "reward")
    assert done.code == 2 and "must begin with (prompt, completion, answer)" in done.err
    assert oolong("function", "get", "bad@1").code == 2
    Path("latin.py").write_bytes(b"\xff")
    assert "not UTF-8" in oolong("function", "upload", "latin.py", "--name", "x", "--kind", "reward").err
