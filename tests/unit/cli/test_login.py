"""Which server, and as whom: profiles, addresses, errors as JSON, completion."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.support.scripted_api import TOKEN, Answer, ScriptedApi, page, problem, run
from tests.unit.cli.conftest import Oolong
from tests.unit.cli.test_command import ME


@pytest.fixture
def me(api: ScriptedApi) -> None:
    api.script["GET me"] = Answer(ME)
    api.script["GET runs"] = Answer(page(run()))


def test_each_profile_has_a_server_and_a_token(
    api: ScriptedApi, oolong: Oolong, me: None, tmp_path: Path
) -> None:
    assert (
        oolong(
            "login", "--url", api.url, "--token", "-", "--profile", "work", token=None, stdin=f"{TOKEN}\n"
        ).returncode
        == 0
    )
    assert oolong("login", "--url", f"{api.url}/", "--token", TOKEN, token=None).returncode == 0
    file = tmp_path / ".config" / "oolong" / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = json.loads(oolong("profile", "list", "--json", token=None).stdout)
    assert shown == {
        "current": "default",
        "profiles": {"work": {"url": api.url}, "default": {"url": api.url}},
    }
    assert oolong("profile", "use", "work", token=None).returncode == 0
    assert oolong("whoami", token=None).returncode == 0
    assert oolong("logout", token=None).returncode == 0
    assert oolong("--profile", "default", "whoami", token=None).returncode == 0
    unknown = oolong("--profile", "work", "whoami", token=None)
    assert unknown.returncode == 4 and "known: default" in unknown.stderr
    assert oolong("profile", "use", "work", token=None).returncode == 4
    assert oolong("login", "--url", api.url, "--token", TOKEN, "--profile", "a b", token=None).returncode == 4


def test_a_kept_token_is_not_sent_to_another_server(
    api: ScriptedApi, oolong: Oolong, me: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert oolong("login", "--url", "http://127.0.0.1:9", "--token", TOKEN, token=None).returncode == 8
    oolong("login", "--url", api.url, "--token", TOKEN, token=None)
    from oolong.client import NotConfigured
    from oolong.client.settings import read_settings

    home = {"HOME": str(Path.cwd())}
    with pytest.raises(NotConfigured, match="OOLONG_TOKEN"):
        read_settings(environment={**home, "OOLONG_URL": "http://elsewhere.example"})


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://host", "http://", "http://[::1", "http://host:port", "http://h/?q=1"]
)
def test_an_address_that_is_none_is_a_usage_error(oolong: Oolong, url: str) -> None:
    done = oolong("login", "--url", url, "--token", "t", token=None)
    assert done.returncode == 2
    assert repr(url) in done.stderr


def test_errors_are_json_where_json_was_asked_for(api: ScriptedApi, oolong: Oolong) -> None:
    errors = [{"pointer": "/spec/kind", "code": "invalid", "message": "kind is ppo"}]
    api.script["GET runs/run_1"] = Answer(problem("invalid", "kind is ppo", errors), 422)
    done = oolong("run", "get", "run_1", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr) == {
        "error": "kind is ppo", "exit_code": 2, "code": "invalid", "status": 422, "request_id": "req_1",
        "errors": errors,
    }  # fmt: skip
    usage = oolong("run", "get", "--json")
    assert usage.returncode == 2 and json.loads(usage.stderr)["code"] == "usage"
    nobody = oolong("run", "list", "--json", token=None)
    assert nobody.returncode == 4 and "OOLONG_URL" in json.loads(nobody.stderr)["error"]


def test_a_single_fault_is_told_once_and_several_each(api: ScriptedApi, oolong: Oolong) -> None:
    one = [{"pointer": "/limit", "code": "range", "message": "limit must be small"}]
    api.script["GET runs/run_1"] = Answer(problem("invalid", "limit=0: limit must be small", one), 422)
    assert oolong("run", "get", "run_1").stderr == "error: limit=0: limit must be small\n"
    two = [*one, {"pointer": "/name", "code": "x", "message": "is empty"}]
    api.script["GET runs/run_1"] = Answer(problem("invalid", "limit must be small (and 1 more)", two), 422)
    assert oolong("run", "get", "run_1").stderr.splitlines()[1:] == [
        "  /limit: limit must be small",
        "  /name: is empty",
    ]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, 4),
        (403, 4),
        (404, 2),
        (409, 2),
        (410, 2),
        (412, 2),
        (422, 2),
        (418, 1),
        (429, 8),
        (500, 8),
        (503, 8),
    ],
)
def test_an_answer_of_the_server_has_its_exit_code(
    api: ScriptedApi, oolong: Oolong, monkeypatch: pytest.MonkeyPatch, status: int, code: int
) -> None:
    monkeypatch.setattr("oolong.client.exchange.RetryPolicy.wait", lambda *given: 0.0)
    api.script["POST runs/run_1/stop"] = Answer(problem("x", "no"), status)
    assert oolong("run", "stop", "run_1").returncode == code


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(oolong: Oolong, shell: str) -> None:
    done = oolong("completion", shell, token=None)
    assert done.returncode == 0 and "_OOLONG_COMPLETE" in done.stdout
    assert oolong("completion", "csh", token=None).returncode == 2
