"""The doctor: finds what is wrong, says what to do, and tells no secret."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from control_plane.accounts.identity.services import create_login_link
from control_plane.config import Oidc
from control_plane.core.models import Tick
from control_plane.fleet.models import Liveness, Node
from control_plane.ops.doctor import collect as collect_module
from control_plane.ops.doctor.collect import collect
from control_plane.ops.doctor.findings import findings
from control_plane.ops.doctor.redact import HIDDEN, redact
from control_plane.runs.models import Job, RunEvent
from oolong.contracts.lifecycle import EndReason
from tests.unit.control_plane.conftest import Clock, Person, SimulatedNode

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7x\n-----END RSA PRIVATE KEY-----"


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services answer; the tests of init ask the real ones."""
    monkeypatch.setattr(collect_module, "check_dependencies", lambda: iter(()))
    monkeypatch.setattr(collect_module, "namespace_error", lambda: "")


def test_no_secret_is_in_the_bundle(
    well: None,
    alice: Person,
    node: Callable[..., SimulatedNode],
    start: Callable[..., Any],
    clock: Clock,
    settings: Any,
    tmp_path: Path,
) -> None:
    settings.ENVIRONMENT = dataclasses.replace(
        settings.ENVIRONMENT,
        secret_key="planted-signing-key-0123456789", metrics_token="planted-metrics-token",
        secrets_keys=["planted-sealing-key"],
        database_url="postgresql://oolong:planted-database-pw@db/x", redis_url="redis://:planted%2Fbroker@valkey/0",
        storage_url="s3://bucket/x?endpoint=https://planted-user:planted-pw@s3",
        oidc=Oidc(
            issuer="https://id.example.org", client_id="oolong", client_secret="planted-client-secret", name="id",
            role_claim="groups", roles=(),
        ),
    )  # fmt: skip
    first = node()
    run = start(first)
    attempt = first.reply.attempts[0]  # type: ignore[union-attr]
    link = create_login_link(alice.user, now=clock.now)
    secrets = [
        "planted-signing-key-0123456789", "planted-metrics-token", "planted-sealing-key", "planted-client-secret",
        "planted-database-pw",
        "planted%2Fbroker", "planted/broker", "planted-user", "planted-pw", alice.token, first.credential,
        attempt.token, link.rpartition("/")[2], "hunter2hunter2", "hf_AbCdEfGhIjKlMn", "AKIAIOSFODNN7EXAMPLE",
        "MIIEpAIBAAKCAQEA7x", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ]  # fmt: skip
    told = (
        f"could not reach postgresql://oolong:planted-database-pw@db/x with {alice.token}; api_key='hunter2hunter2' "
        f'HF_TOKEN=hf_AbCdEfGhIjKlMn AKIAIOSFODNN7EXAMPLE {first.credential} "password": "hunter2hunter2" '
        f"Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl {PEM} GET {link} planted/broker "
        f"planted-sealing-key planted-client-secret planted-metrics-token "
        f"SECRET_KEY=planted-signing-key-0123456789 token={attempt.token}"
    )
    Job.objects.filter(attempt__run=run["id"]).update(reason=EndReason.TRAINER_CRASHED, message=told)
    RunEvent.objects.create(run_id=run["id"], at=clock.now, kind="bad_outbox_line", message=told)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "web.log").write_text(
        "an honest line\n" + told + "\n" + json.dumps({"message": told}) + "\n"
    )
    Tick.objects.create(name="place-jobs", count=5, last_at=clock.now)
    out = tmp_path / "bundle.zip"
    call_command("doctor", "--out", str(out), "--logs", str(tmp_path / "logs"), stdout=io.StringIO())
    with zipfile.ZipFile(out) as bundle:
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    for name, text in texts.items():
        for secret in secrets:
            assert secret not in text, (name, secret)
    assert HIDDEN in texts["errors.json"] and HIDDEN in texts["logs/web.log"]
    assert "an honest line" in texts["logs/web.log"]
    assert json.loads(texts["settings.json"])["secret_key"] == "set"
    assert json.loads(texts["runs.json"])["by_status"] == {"RUNNING": 1}
    assert json.loads(texts["errors.json"])[0]["reason"] == EndReason.TRAINER_CRASHED
    assert out.stat().st_mode & 0o777 == 0o600


def test_a_bundle_is_not_written_over_a_file(well: None, db: None, tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_text("mine")
    for name, says in (("mine.zip", "File exists"), ("nowhere/bundle.zip", "No such file or directory")):
        with pytest.raises(CommandError, match=f"--out .*{name}: {says}; name a file that is not there yet"):
            call_command("doctor", "--out", str(tmp_path / name), stdout=io.StringIO())
    assert (tmp_path / "mine.zip").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("the run waits for 2 slots of pool default", True),
        ("tokens generated: see the chart", True),
        ("commit 0af7651916cd43dd8448eb211c80319c", True),
        ("WANDB_API_KEY=0af7651916cd43dd8448", False),
        ("https://example.org/x?X-Amz-Signature=abcdef0123", False),
        ("git clone https://bob:hunter2@example.org/x", False),
    ],
)
def test_words_stay_and_secrets_go(text: str, stays: bool) -> None:
    assert (redact(text) == text) is stays, redact(text)


def test_what_is_wrong_is_said_with_a_way_out(
    well: None, alice: Person, node: Callable[..., SimulatedNode], clock: Clock
) -> None:
    node()
    said = {advice.what: advice for advice in findings(collect(now=clock.now, logs=None))}
    assert said["no tick has ever run"].level == "fault"
    Tick.objects.create(name="place-jobs", count=5, failures=2, last_at=clock.now)
    Tick.objects.create(name="advance-runs", count=5, last_at=clock.now - timedelta(minutes=5))
    Node.objects.update(liveness=Liveness.LOST)
    said = {advice.what: advice for advice in findings(collect(now=clock.now, logs=None))}
    assert said["the tick place-jobs has failed 2 times"].level == "warning"
    assert said["the tick advance-runs has not run for 300 s"].level == "warning"
    (lost,) = [advice for what, advice in said.items() if what.startswith("node node-1 is LOST")]
    assert lost.level == "fault" and "agent's log" in lost.do
    clock.forward(600)
    said = {advice.what: advice for advice in findings(collect(now=clock.now, logs=None))}
    assert said["nothing has ticked for 600 s"].do == "a worker and beat must run; see their logs"


def test_a_dashboard_that_is_not_built_is_said_and_a_healthy_installation_has_no_finding(
    well: None,
    node: Callable[..., SimulatedNode],
    clock: Clock,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node()
    Tick.objects.create(name="place-jobs", count=5, last_at=clock.now)
    monkeypatch.setattr(collect_module, "_disk", lambda: iter(()))
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, webui_dist=tmp_path)
    said = io.StringIO()
    call_command("doctor", stdout=said)
    assert said.getvalue().startswith(f"warning  the dashboard is not built: {tmp_path} has no index.html")
    assert "`python3 manage.py webui` builds it" in said.getvalue()
    (tmp_path / "index.html").write_text("<html>the page</html>")
    said = io.StringIO()
    call_command("doctor", stdout=said)
    assert said.getvalue() == "Nothing looks wrong.\n"


def test_a_fault_is_the_exit_status(well: None, db: None) -> None:
    said = io.StringIO()
    with pytest.raises(CommandError, match="at least one fault"):
        call_command("doctor", "--json", stdout=said)
    assert any(advice["what"] == "no tick has ever run" for advice in json.loads(said.getvalue()))


def test_a_full_disk_is_named() -> None:
    nearly_full = [{"what": "the data folder", "free_bytes": 1e9, "total_bytes": 1e11}]
    collected: dict[str, Any] = {
        "services": [], "migrations": {}, "ticks": [{"name": "x", "age_seconds": 1.0, "failures": 0}],
        "runs": {}, "slots": {}, "nodes": [{"name": "n", "status": "READY", "unhealthy": 0, "agent_version": "1"}],
        "disk": nearly_full, "settings": {}, "dashboard": {"path": "webui/dist", "built": True},
        "untrusted_proxy": "", "sandbox": "",
    }  # fmt: skip
    (advice,) = findings(collected)
    assert (advice.level, advice.what) == ("fault", "the data folder has 1.0 GB free of 100.0 GB")
    bare = findings(collected | {"disk": [], "sandbox": "user namespaces are refused: no"})
    assert [(one.level, "code reward" in one.what) for one in bare] == [("warning", True)]
    assert "user namespaces are refused" in bare[0].what and bare[0].do
