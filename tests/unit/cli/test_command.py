"""The `oolong` command against a scripted API: what it prints, and what it exits with."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from oolong.client import models
from tests.support.scripted_api import TOKEN, Answer, Asked, ScriptedApi, page, problem, run, shaped
from tests.unit.cli.conftest import Oolong

ROOT = Path(__file__).resolve().parents[3]

ME = {
    "user": {"id": "user_1", "username": "alice"}, "team": {"id": "team_1", "name": "core"}, "role": "admin",
    "project": {"id": "prj_1", "name": "default"}, "scopes": ["*"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (run("SUCCEEDED"), 0),
        (run("FAILED", reason="trainer_crashed", fault="user"), 5),
        (run("FAILED", reason="nonfinite_loss", fault="config"), 5),
        (run("STOPPED", reason="stopped_by_user"), 7),
        (run("FAILED", reason="node_lost", fault="infra"), 8),
        (run("FAILED", reason="controller_crashed", fault="platform"), 8),
        (run("PAUSED", reason="reward_error_rate", fault="reward"), 5),
    ],
)
def test_wait_exits_by_how_the_run_ended(
    api: ScriptedApi, oolong: Oolong, ended: dict[str, object], code: int
) -> None:
    api.script["GET runs/run_1"] = [Answer(run("RUNNING")), Answer(ended)]
    done = oolong("run", "wait", "run_1")
    assert done.returncode == code, done.stderr
    assert done.stdout.strip() == ended["status"]
    assert "reward 0.500" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("frobnicate",), "No such command 'frobnicate'; see `oolong --help`"),
        (("run", "start"), "No such command 'start'; see `oolong run --help`"),
        (("run", "get"), "Missing argument 'RUN'; see `oolong run get --help`"),
        (("run", "list", "--wallpaper"), "No such option: --wallpaper; see `oolong run list --help`"),
    ],
)
def test_wrong_arguments_point_to_the_help(oolong: Oolong, words: tuple[str, ...], said: str) -> None:
    done = oolong(*words)
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr


def test_wait_gives_up_after_its_timeout_and_the_run_goes_on(api: ScriptedApi, oolong: Oolong) -> None:
    api.script["GET runs/run_1"] = Answer(run("RUNNING"))
    done = oolong("run", "wait", "run_1", "--timeout", "0.1")
    assert done.returncode == 3
    assert "is RUNNING after 0.1 s" in done.stderr
    assert {asked.method for asked in api.asked} == {"GET"}


def test_wait_bears_an_outage(api: ScriptedApi, oolong: Oolong) -> None:
    away = [Answer(problem("unavailable", "away"), 503)] * 3
    api.script["GET runs/run_1"] = [Answer(run("RUNNING")), *away, Answer(run("SUCCEEDED"))]
    assert oolong("run", "wait", "run_1").returncode == 0


@pytest.mark.parametrize(
    ("assertion", "code", "said"),
    [
        ("reward/mean >= 0.8", 0, "holds: reward/mean >= 0.8, measured 0.91"),
        ("reward/mean > 0.95", 6, "FAILS: reward/mean > 0.95, measured 0.91"),
        ("summary.evaluation.end.greedy >= 0.5", 0, "measured 0.75"),
        ("sft/loss > 1", 6, "sft/loss was not measured in this run"),
        ("reward/maen > 1", 2, "no run measures 'reward/maen'; did you mean 'reward/mean'?"),
        ("summary.evaluation.end.sampled < 1", 6, "not measured"),
    ],
)
def test_wait_checks_assertions_at_the_end(
    api: ScriptedApi, oolong: Oolong, assertion: str, code: int, said: str
) -> None:
    api.script["GET runs/run_1"] = Answer(run("SUCCEEDED", summary={"evaluation": {"end": {"greedy": 0.75}}}))
    name = {
        "name": "reward/mean",
        "unit": "",
        "help": "",
        "axis": "step",
        "sources": ["trainer"],
        "last_x": 60,
        "conflicts": 0,
    }
    api.script["GET runs/run_1/metric-names"] = Answer({"data": [name]})
    series = {
        "name": "reward/mean",
        "unit": "",
        "axis": "step",
        "source": "trainer",
        "attempt": 1,
        "x": [60],
        "value": [0.91],
        "at": [0.0],
    }
    api.script["GET runs/run_1/metrics"] = Answer({"series": [series], "seq": 9})
    done = oolong("run", "wait", "run_1", "--assert", assertion)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_an_assertion_that_is_none_is_a_usage_error(oolong: Oolong) -> None:
    done = oolong("run", "wait", "run_1", "--assert", "reward is good")
    assert done.returncode == 2
    assert "reward/mean >= 0.8" in done.stderr


def test_an_invalid_spec_exits_2_and_points_at_the_field(
    api: ScriptedApi, oolong: Oolong, tmp_path: Path
) -> None:
    errors = [{"pointer": "/rollout/top_p", "code": "truncated_sampling", "message": "top_p=0.9 is refused"}]
    api.script["POST runs"] = Answer(problem("invalid_spec", "the spec is invalid", errors), 422)
    (tmp_path / "run.yaml").write_text("kind: rl\nname: x\n")
    done = oolong("run", "create", "-f", "run.yaml")
    assert done.returncode == 2
    assert "/rollout/top_p: top_p=0.9 is refused" in done.stderr


def test_create_sends_the_document_with_a_key_of_its_own_and_prints_the_id(
    api: ScriptedApi, oolong: Oolong
) -> None:
    api.script["POST runs"] = [Answer(problem("unavailable", "away"), 503), Answer(run("QUEUED"), 201)]
    done = oolong("run", "create", "-f", "-", "--name", "other", stdin="kind: rl\nname: x\n")
    assert (done.returncode, done.stdout.strip()) == (0, "run_1")
    first, second = api.asked
    assert json.loads(second.body) == {"spec": {"kind": "rl", "name": "other"}}
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("name: x\ntrainer: {learning_rate: .nan}\n", "run.yaml: line 2: .nan is no number that JSON has"),
        ("name: x\nname: y\n", "run.yaml: line 2: the key 'name' is there twice"),
    ],
)
def test_what_a_spec_file_says_twice_or_in_no_number_is_refused_with_its_line(
    oolong: Oolong, tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "run.yaml").write_text(content)
    done = oolong("run", "create", "-f", "run.yaml")
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("content", ["- a list", "kind: [", ""])
def test_a_spec_file_that_is_no_mapping_is_a_usage_error(
    oolong: Oolong, tmp_path: Path, content: str
) -> None:
    (tmp_path / "run.yaml").write_text(content)
    assert oolong("run", "create", "-f", "run.yaml").returncode == 2
    assert oolong("run", "create", "-f", "absent.yaml").returncode == 2


def test_a_wrong_token_exits_4(oolong: Oolong) -> None:
    done = oolong("run", "get", "run_1", token="ool_wrong")
    assert done.returncode == 4
    assert "the token is unknown" in done.stderr


def test_no_token_at_all_exits_4_and_says_what_to_type(oolong: Oolong) -> None:
    done = oolong("run", "list", token=None)
    assert done.returncode == 4
    assert "oolong login" in done.stderr


def test_what_does_not_exist_exits_2(oolong: Oolong) -> None:
    done = oolong("run", "get", "run_9")
    assert done.returncode == 2
    assert "nothing at runs/run_9" in done.stderr


def test_login_keeps_url_and_token_where_only_the_owner_reads_them(
    api: ScriptedApi, oolong: Oolong, tmp_path: Path
) -> None:
    api.script["GET me"] = Answer(ME)
    api.script["GET runs"] = Answer(page(run()))
    done = oolong("login", "--url", api.url, "--token", TOKEN, token=None)
    assert done.returncode == 0, done.stderr
    config = tmp_path / ".config" / "oolong" / "config.toml"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert TOKEN not in done.stdout + done.stderr
    assert oolong("run", "list", token=None).returncode == 0
    config.chmod(0o644)
    refused = oolong("run", "list", token=None)
    assert refused.returncode == 4 and "chmod 600" in refused.stderr


def test_a_wrong_token_is_not_saved(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
    assert oolong("login", "--url", api.url, "--token", "ool_wrong", token=None).returncode == 4
    assert not (tmp_path / ".config").exists()


def test_lists_are_tab_separated_without_a_terminal_and_json_on_demand(
    api: ScriptedApi, oolong: Oolong
) -> None:
    def runs(asked: Asked) -> Answer:
        return Answer(
            page(run(id="run_2")) if asked.query.get("cursor") == "next" else page(run(), cursor="next")
        )

    api.script["GET runs"] = runs
    lines = oolong("run", "list").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["run_1", "run_2"]
    assert lines[0].split("\t")[3:6] == ["RUNNING", "3/60", "0.5"]
    assert [item["id"] for item in json.loads(oolong("run", "list", "--json").stdout)] == ["run_1", "run_2"]


def test_logs_name_the_job_of_each_line(api: ScriptedApi, oolong: Oolong) -> None:
    text = {"job_1": "step 1\nstep 2\n", "job_2": "engine is up"}
    files = [
        shaped(models.LogFile, job="job_1", name="trainer", attempt=1, bytes=14),
        shaped(models.LogFile, job="job_2", name="rollout-0", attempt=1, bytes=12),
    ]

    def logs(asked: Asked) -> Answer:
        job = asked.query.get("job")
        if job is None:
            return Answer({"data": files})
        begin = int(asked.query["offset"])
        part = text[job][begin : begin + 5]
        return Answer(shaped(models.LogPart, job=job, offset=begin, next_offset=begin + len(part), text=part))

    api.script["GET runs/run_1/logs"] = logs
    done = oolong("run", "logs", "run_1")
    assert done.stdout.splitlines() == ["trainer | step 1", "trainer | step 2", "rollout-0 | engine is up"]
    assert oolong("run", "logs", "run_1", "--job", "trainer").stdout.splitlines() == ["step 1", "step 2"]


def test_following_logs_ends_with_the_run_and_its_exit_code(api: ScriptedApi, oolong: Oolong) -> None:
    api.script["GET runs/run_1"] = [Answer(run("RUNNING")), Answer(run("STOPPED"))]
    file = shaped(models.LogFile, job="job_1", name="trainer", attempt=1, bytes=6)

    def logs(asked: Asked) -> Answer:
        if "job" not in asked.query:
            return Answer({"data": [file]})
        return Answer(shaped(models.LogPart, job="job_1", next_offset=6, text="step 1", end=True))

    api.script["GET runs/run_1/logs"] = logs
    done = oolong("run", "logs", "run_1", "-f")
    assert (done.returncode, done.stdout) == (7, "trainer | step 1\n")
    api.script["GET runs/run_1"] = [Answer(run("RUNNING")), Answer(run("STOPPED"))]
    assert oolong("run", "logs", "run_1", "-f", "--search", "step 2").stdout == ""
    api.script["GET runs/run_1"] = [Answer(run("RUNNING")), Answer(run("STOPPED"))]
    assert oolong("run", "logs", "run_1", "-f", "--search", "STEP").stdout == "trainer | step 1\n"


def test_a_model_folder_is_uploaded_as_one_archive(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    api.script["POST uploads"] = Answer(shaped(models.Upload, id="upl_1", filename="tiny.tar"), 201)
    model = shaped(models.Model, id="bm_1", name="tiny", state="READY")
    api.script["POST models"] = Answer(model, 201)
    assert oolong("model", "upload", "tiny", "--name", "tiny").stdout.strip() == "bm_1"
    assert api.asked[0].query["filename"] == "tiny.tar"
    assert b"config.json" in api.asked[0].body
    assert len(api.asked[0].body) % 10240 == 0


def test_the_command_starts_as_a_process_of_its_own_and_exits_with_its_code(
    api: ScriptedApi, tmp_path: Path
) -> None:
    api.script["GET runs/run_1"] = Answer(run("STOPPED", reason="stopped_by_user"))
    done = subprocess.run(
        [sys.executable, "-m", "oolong.cli", "run", "wait", "run_1"],
        env={
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "OOLONG_URL": api.url, "OOLONG_TOKEN": TOKEN,
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (7, "STOPPED"), done.stderr
