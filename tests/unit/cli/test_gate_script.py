"""docs/ci/gate.sh as far as it goes without a server: what it asks in which order, and what it exits with.

Against a live one it runs in tests/integration/agent/test_with_control_plane.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
import yaml

from oolong.cli.ci import FILES
from oolong.cli.exit_codes import ExitCode
from tests.support.waiting import wait_until
from tests.tools import cli_page

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "ci"

RECORDER = r"""#!/bin/sh
echo "$@" >> "$CALLS"
case "$1 $2" in
  "run create") echo run_1 ;;
  "run wait")
    [ -z "$WAIT_LONG" ] || { trap 'echo cancelled >> "$CALLS"; exit 130' TERM; touch "$CALLS.waits"; }
    while [ -n "$WAIT_LONG" ]; do /bin/sleep 0.05; done
    exit "${WAIT_STATUS:-0}" ;;
  "dataset upload") [ ! -e "$CALLS.busy" ] || { rm "$CALLS.busy"; exit 8; }; echo dsv_1 ;;
  "dataset validate") exit "${VALIDATE_STATUS:-0}" ;;
esac
"""


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("oolong", RECORDER), ("sleep", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def gate(commands: Path, **variables: str) -> tuple[int, list[str]]:
    return gate_that_says(commands, **variables)[:2]


def gate_that_says(commands: Path, **variables: str) -> tuple[int, list[str], str]:
    calls = commands / "calls"
    done = subprocess.run(
        [str(FOLDER / "gate.sh"), "my rows.jsonl", "run.yaml", "prod"],
        env={
            "PATH": f"{commands}:{os.environ['PATH']}", "CALLS": str(calls), "OOLONG_URL": "http://x",
            "OOLONG_TOKEN": "t", **variables,
        },
        cwd=commands, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, calls.read_text().splitlines(), done.stderr


def test_what_does_not_pass_is_not_promoted(commands: Path) -> None:
    code, calls = gate(
        commands, WAIT_STATUS="6", GATE_KEY="a b", GATE_ASSERT="x >= 1\ny < 2\n", GATE_BASELINE="alias:prod"
    )
    assert code == 6
    assert [" ".join(call.split()[:2]) for call in calls] == [
        "whoami", "dataset validate", "dataset upload", "run validate", "run create", "run wait",
    ]  # fmt: skip
    assert calls[-2] == "run create -f run.yaml --dataset dsv_1 --dedupe-key a b", "exactly what was uploaded"
    assert calls[-3] == "run validate -f run.yaml --dataset dsv_1"
    assert "--assert x >= 1 --assert y < 2 --baseline alias:prod" in calls[-1]
    assert "--cancel-on-interrupt" in calls[-1]


def test_every_input_of_the_comparison_reaches_the_wait(commands: Path) -> None:
    _, calls = gate(
        commands, WAIT_STATUS="6", GATE_TOLERANCE="0.01", GATE_CONFIDENCE="0.95", GATE_SIGMA="0.02",
        GATE_DETECT="0.05", GATE_INVESTIGATE="pass", GATE_SET="trainer.total_train_steps=9\nseed=2",
    )  # fmt: skip
    words = "--tolerance 0.01 --confidence 0.95 --sigma 0.02 --detect 0.05 --investigate pass"
    assert words in calls[-1]
    changes = "--set trainer.total_train_steps=9 --set seed=2 --dataset dsv_1"
    assert changes in calls[-2] and changes in calls[-3]


@pytest.mark.parametrize(
    ("variables", "code", "stage"),
    [({"VALIDATE_STATUS": "2"}, 2, "dataset"), ({"WAIT_STATUS": "8"}, 8, "wait"), ({}, 1, "checkpoint")],
)
def test_the_report_says_so_wherever_the_script_ends(
    commands: Path, variables: dict[str, str], code: int, stage: str
) -> None:
    """Without WAIT_STATUS the wait succeeds without a document of the run: nothing can be promoted."""
    (commands / "oolong-out").mkdir()
    (commands / "oolong-out" / "report.xml").write_text("of an earlier job")
    ended, _, _ = gate_that_says(commands, **variables)
    assert ended == code
    root = xml.parse(commands / "oolong-out" / "report.xml").getroot()
    assert (root.get("tests"), root.get("errors")) == ("1", "1")
    (case,) = root.iter("testcase")
    assert case.get("name") == stage and str(case[0].get("message")).startswith(f"exit {code}")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("5", "the run failed"),
        ("6", "oolong-out/summary.md"),
        ("8", "safe to try again"),
        ("9", "unexpected"),
    ],
)
def test_it_says_why_nothing_was_promoted_and_where_to_look(commands: Path, status: str, said: str) -> None:
    code, _, words = gate_that_says(commands, WAIT_STATUS=status)
    assert code == int(status)
    assert said in words and "prod stays as it was" in words and "http://x/runs/run_1" in words


def test_a_cancelled_job_cancels_its_run(commands: Path) -> None:
    calls = commands / "calls"
    script = subprocess.Popen(
        [str(FOLDER / "gate.sh"), "rows.jsonl", "run.yaml", "prod"],
        env={
            "PATH": f"{commands}:{os.environ['PATH']}", "CALLS": str(calls), "OOLONG_URL": "http://x",
            "OOLONG_TOKEN": "t", "WAIT_LONG": "1",
        },
        cwd=commands, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until((commands / "calls.waits").exists, "the script waits for its run")
    script.terminate()
    assert script.wait(60) == 130
    assert calls.read_text().splitlines()[-1] == "cancelled"


def test_what_is_nobodys_mistake_is_tried_again(commands: Path) -> None:
    (commands / "calls.busy").touch()
    _, calls = gate(commands, WAIT_STATUS="5")
    assert sum(call.startswith("dataset upload") for call in calls) == 2
    assert sum(call.startswith("run wait") for call in calls) == 1, "the wait bears an outage by itself"


def test_the_command_runs_this_very_script(commands: Path) -> None:
    for name in ("my rows.jsonl", "run.yaml"):
        (commands / name).touch()
    done = subprocess.run(
        [sys.executable, "-m", "oolong.cli", "ci", "gate", "my rows.jsonl", "run.yaml", "prod"],
        env={
            "PATH": f"{commands}:{os.environ['PATH']}", "CALLS": str(commands / "calls"), "OOLONG_URL": "http://x",
            "OOLONG_TOKEN": "t", "WAIT_STATUS": "6", "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        },
        cwd=commands, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert "dataset upload my rows.jsonl" in (commands / "calls").read_text()
    assert (FOLDER / "gate.sh").resolve() == FILES / "gate.sh"


def test_the_script_and_the_examples_name_commands_and_options_that_exist() -> None:
    verbs = dict(cli_page.verbs())
    script = (FOLDER / "gate.sh").read_text().replace("\\\n", " ")
    for verb, rest in re.findall(r"oolong ((?:run|checkpoint|dataset) \w+|whoami)([^|;)]*)", script):
        options = {option for parameter in verbs[verb].params for option in parameter.opts}
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", rest.split(">")[0])) <= options, verb


def test_action_and_examples_hand_on_every_variable_of_the_script() -> None:
    known = set(re.findall(r"\b(?:GATE|OOLONG)_[A-Z]+\b", (FOLDER / "gate.sh").read_text()))
    action = yaml.safe_load((FOLDER / "action" / "action.yml").read_text())
    install, run = action["runs"]["steps"]
    assert {name for name in run["env"] if name.startswith(("GATE_", "OOLONG_"))} == known - {"GATE_DATASET"}
    used = set(re.findall(r"inputs\.([\w-]+)", str(run["env"]) + str(install["env"])))
    assert used == set(action["inputs"])
    for step in (install, run):
        assert "${{" not in step["run"], "an input in a command's text could be a command"
    github = yaml.safe_load((FOLDER / "github.yml").read_text())
    given = github["jobs"]["gate"]["steps"][1]["with"]
    assert set(given) <= set(action["inputs"])
    assert {name for name, wanted in action["inputs"].items() if wanted.get("required")} <= set(given)
    gitlab = yaml.safe_load((FOLDER / "gitlab.yml").read_text())["gate"]
    assert set(gitlab["variables"]) <= known
    assert gitlab["retry"]["exit_codes"] == [ExitCode.INFRASTRUCTURE]
