"""Which server, and as whom: profiles, addresses, errors as JSON, completion."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
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


def test_a_saved_token_is_not_sent_to_another_server(
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


def test_a_single_error_is_printed_once_and_several_each(api: ScriptedApi, oolong: Oolong) -> None:
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
    monkeypatch.setattr("oolong.client.transport.RetryPolicy.wait", lambda *given: 0.0)
    api.script["POST runs/run_1/stop"] = Answer(problem("x", "no"), status)
    assert oolong("run", "stop", "run_1").returncode == code


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(oolong: Oolong, shell: str) -> None:
    done = oolong("completion", shell, token=None)
    assert done.returncode == 0 and "_OOLONG_COMPLETE" in done.stdout
    assert oolong("completion", "csh", token=None).returncode == 2


ACCEPTED = {
    "team": {"id": "team_1", "name": "core"}, "project": {"id": "prj_1", "name": "default"}, "level": "project",
    "role": "editor", "invited_by": "alice", "expires_at": "2026-01-08T00:00:00Z", "username": "erin",
    "token": TOKEN,
}  # fmt: skip


def test_a_new_user_accepts_an_invitation_without_a_token_and_is_logged_in(
    api: ScriptedApi, oolong: Oolong, me: None
) -> None:
    api.script["POST invitations/accept"] = Answer(ACCEPTED)
    link = f"{api.url}/invite#inv_secret\n"
    joined = oolong("invite", "accept", link, "--new-user", "erin", token=None, stdin="correct horse\n")
    assert joined.returncode == 0, joined.stderr
    logged_in, joined_line = joined.stderr.splitlines()
    assert logged_in.startswith("logged in as erin"), "nothing asks, and nothing warns of echo, on a pipe"
    assert joined_line == "joined core/default as editor"
    asked = api.asked[-1]
    assert "Authorization" not in asked.headers
    sent = json.loads(asked.body)
    assert (sent["secret"], sent["password"]) == ("inv_secret", "correct horse")
    assert oolong("whoami", token=None).returncode == 0


def test_a_token_on_a_pipe_is_read_without_a_question(api: ScriptedApi, oolong: Oolong, me: None) -> None:
    done = oolong("login", "--url", api.url, token=None, stdin=f"{TOKEN}\n")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("logged in as"), done.stderr
    assert oolong("whoami", token=None).returncode == 0


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("login", "--url", "http://127.0.0.1:9"), "API token"),
        (("invite", "accept", "http://127.0.0.1:9/invite#inv_a", "--new-user", "erin"), "new password"),
    ],
)
def test_without_a_terminal_and_input_a_question_is_refused_with_the_way_out(
    oolong: Oolong, words: tuple[str, ...], wanted: str
) -> None:
    done = oolong(*words, token=None, stdin="")
    assert done.returncode == 2
    assert f"no terminal to ask for the {wanted}" in done.stderr and "as one line" in done.stderr


@pytest.mark.parametrize("around", ["{}\n", " {}\t", "{}\r\n"])
def test_white_space_around_a_token_is_not_part_of_it(
    api: ScriptedApi, oolong: Oolong, me: None, around: str
) -> None:
    padded = around.format(TOKEN)
    assert oolong("whoami", token=padded).returncode == 0
    assert oolong("login", "--url", f"{api.url}\n", "--token", padded, token=None).returncode == 0
    assert oolong("whoami", token=None).returncode == 0


@pytest.mark.parametrize("token", ["ool_se\ncret", "ool_se cret", "ool_s\u00e9cret", "ool_se\x00cret"])
@pytest.mark.parametrize("json_words", [(), ("--json",)])
def test_a_token_that_is_none_exits_4_and_is_never_printed(
    oolong: Oolong, token: str, json_words: tuple[str, ...]
) -> None:
    done = oolong("login", "--url", "http://127.0.0.1:9", "--token", token, token=None)
    assert done.returncode == 4
    assert "cret" not in done.stdout + done.stderr and "line break" in done.stderr
    if "\x00" not in token:  # no environment variable holds it
        done = oolong("whoami", *json_words, token=token)
        assert done.returncode == 4 and "cret" not in done.stdout + done.stderr


def test_settings_and_errors_do_not_show_a_token(api: ScriptedApi, oolong: Oolong) -> None:
    from oolong.client.settings import ClientSettings

    assert "ool_secret" not in repr(ClientSettings("http://x", "ool_secret"))
    assert oolong("whoami", token="ool_secret").returncode == 4
    api.script["POST tokens"] = Answer({"token": "ool_made_just_now", "name": 3})
    odd = oolong("token", "create", "--name", "x", "--scope", "runs:read")
    assert odd.returncode == 1 and "ool_made_just_now" not in odd.stdout + odd.stderr
    credentials = oolong("login", "--url", "http://me:ool_secret@host", "--token", TOKEN, token=None)
    assert credentials.returncode == 2 and "ool_secret" not in credentials.stderr


@pytest.mark.parametrize(("days", "warned"), [(3, True), (40, False)])
def test_every_command_warns_of_a_token_that_ends_soon(
    api: ScriptedApi, oolong: Oolong, days: int, warned: bool
) -> None:
    ends = f"{datetime.now(UTC) + timedelta(days=days, hours=1):%Y-%m-%dT%H:%M:%SZ}"
    headers = {"X-Oolong-Token-Expires": ends}
    token = {"id": "tok_1", "name": "laptop", "expires_at": ends}
    api.script["GET me"] = Answer(ME | {"token": token}, headers=headers)
    api.script["GET runs"] = Answer(page(run()), headers=headers)
    for words in (("run", "list"), ("whoami",)):
        done = oolong(*words)
        assert done.returncode == 0
        assert (f"this token expires at {ends}, in {days} days" in done.stderr) is warned
    assert "token laptop expires: " in oolong("whoami").stderr
