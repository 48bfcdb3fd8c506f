"""Project secrets go in, reach only what names them, and never come out."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import logging
import re
import sys
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from control_plane.accounts.models import AuditEntry, ProjectSecret, Role
from control_plane.accounts.secrets import secret_services
from control_plane.assets import services as catalog
from control_plane.core.api.errors import Problem
from oolong.system import safe_http

VALUE = "hf_the-token-that-nobody-may-see"
ADDRESS = "https://data.example.org/rows.jsonl"


@pytest.fixture
def kept(alice: Any) -> Any:
    body = {"name": "HUB", "value": VALUE, "hosts": ["data.example.org"]}
    assert alice.post("/secrets", body).status_code == 201
    return alice


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Hosts of the open internet that remember what they were asked; /elsewhere leads to another one."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.path == "/elsewhere":
            return httpx.Response(302, headers={"Location": "https://other.example.org/rows.jsonl"})
        return httpx.Response(200, stream=httpx.ByteStream(b'{"question": "1+1", "answer": 2}\n'))

    def fetch(url: str, **limits: Any) -> Any:
        return safe_http.download(
            url, resolve=lambda host, port: ["93.184.216.34"], transport=httpx.MockTransport(answer), **limits
        )

    monkeypatch.setattr(catalog, "download", fetch)
    return asked


def test_a_secret_is_shown_by_name_and_never_by_value(kept: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    listed = kept.get("/secrets").json()["data"]
    assert [(row["name"], row["last_used_at"]) for row in listed] == [("HUB", None)]
    assert re.fullmatch("[0-9a-f]{8}", listed[0]["fingerprint"])
    row = ProjectSecret.objects.get()
    everything = json.dumps([listed, list(AuditEntry.objects.values("data", "message")), str(vars(row))])
    assert VALUE not in everything + caplog.text
    assert VALUE.encode() not in bytes(row.sealed)


def test_setting_it_again_replaces_it(kept: Any, clock: Any) -> None:
    assert kept.post("/secrets", {"name": "HUB", "value": "another"}).status_code == 200
    assert secret_services.reveal(kept.project.pk, ["HUB"], for_what="a test", now=clock.now) == {
        "HUB": "another"
    }
    [row] = kept.get("/secrets").json()["data"]
    assert (row["hosts"], row["last_used_at"] is not None) == ([], True)
    entry = AuditEntry.objects.filter(action="secret.set").latest("pk")
    assert entry.data["before"] != entry.data["after"]


def test_a_deleted_secret_is_gone(kept: Any, clock: Any) -> None:
    assert kept.call("DELETE", "/secrets/HUB").status_code == 204
    assert kept.call("DELETE", "/secrets/HUB").status_code == 404
    with pytest.raises(Problem, match="no secret HUB"):
        secret_services.reveal(kept.project.pk, ["HUB"], for_what="a test", now=clock.now)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [({"name": "lower"}, "/name"), ({"name": "A" * 65}, "/name"), ({"name": "A-B"}, "/name"), ({"value": ""}, "/value"),
     ({"value": "x" * 16385}, "/value"), ({"value": "é" * 16384}, "/value"), ({"hosts": ["https://x"]}, "/hosts/0"),
     ({"hosts": ["x:"]}, "/hosts/0"),
     ({"velue": "x"}, "/velue")],
)  # fmt: skip
def test_a_faulty_secret_is_refused_and_its_value_not_repeated(alice: Any, change: Any, pointer: str) -> None:
    reply = alice.post("/secrets", {"name": "HUB", "value": VALUE, **change})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, pointer)
    assert VALUE not in reply.content.decode()
    assert not ProjectSecret.objects.exists()


def test_only_admins_set_secrets(kept: Any, person: Any) -> None:
    dave = person("dave", role=Role.EDITOR)
    assert dave.post("/secrets", {"name": "HUB", "value": "mine"}).status_code == 403
    assert dave.call("DELETE", "/secrets/HUB").status_code == 403
    assert dave.get("/secrets").json()["data"][0]["name"] == "HUB"


def test_an_import_by_url_sends_the_secret_it_names(kept: Any, internet: list[httpx.Request]) -> None:
    reply = kept.post("/uploads/fetch", {"url": ADDRESS, "secret": "HUB"})
    assert reply.status_code == 201, reply.content
    assert internet[0].headers["Authorization"] == f"Bearer {VALUE}"
    entry = AuditEntry.objects.get(action="secret.use")
    assert (entry.target_name, entry.message) == ("HUB", "an import from data.example.org")
    assert kept.post("/uploads/fetch", {"url": ADDRESS}).status_code == 201
    assert "Authorization" not in internet[1].headers, "only the import that names it"


def test_a_redirect_to_another_host_does_not_take_the_secret_along(
    kept: Any, internet: list[httpx.Request]
) -> None:
    url = "https://data.example.org/elsewhere"
    assert kept.post("/uploads/fetch", {"url": url, "secret": "HUB"}).status_code == 201
    assert ["Authorization" in request.headers for request in internet] == [True, False]


@pytest.mark.parametrize(
    ("body", "code"),
    [({"url": "https://evil.example.org/x", "secret": "HUB"}, "secret_not_for_host"),
     ({"url": "https://data.example.org.evil.org/x", "secret": "HUB"}, "secret_not_for_host"),
     ({"url": "https://[::1", "secret": "HUB"}, "secret_not_for_host"),
     ({"url": ADDRESS, "secret": "NONE"}, "unknown_secret"), ({"url": ADDRESS, "secret": "BAD"}, "secret_invalid")],
)  # fmt: skip
def test_an_import_that_may_not_have_the_secret_asks_nobody(
    kept: Any, internet: list[httpx.Request], body: Any, code: str
) -> None:
    kept.post("/secrets", {"name": "BAD", "value": "two\nlines", "hosts": ["data.example.org"]})
    reply = kept.post("/uploads/fetch", body)
    assert (reply.status_code, reply.json()["code"]) == (422, code)
    assert reply.json()["errors"][0]["pointer"] == "/secret"
    assert internet == []


def test_a_host_with_a_port_is_that_port_alone(kept: Any, internet: list[httpx.Request]) -> None:
    kept.post("/secrets", {"name": "PORT", "value": VALUE, "hosts": ["data.example.org:8443"]})
    kept.post("/secrets", {"name": "USUAL", "value": VALUE, "hosts": ["DATA.example.org:443"]})
    other = ADDRESS.replace(".org/", ".org:8443/")
    for url, name, status in (
        (other, "PORT", 201), (ADDRESS, "USUAL", 201), (other, "HUB", 201),  # HUB names no port
        (ADDRESS, "PORT", 422), (other, "USUAL", 422),
    ):  # fmt: skip
        assert kept.post("/uploads/fetch", {"url": url, "secret": name}).status_code == status, (url, name)
    said = kept.post("/uploads/fetch", {"url": ADDRESS, "secret": "PORT"}).json()["detail"]
    assert "not for 'data.example.org:443' but for data.example.org:8443" in said
    assert len(internet) == 3


def test_another_projects_secret_is_unknown(kept: Any, person: Any, internet: list[httpx.Request]) -> None:
    charlie = person("charlie", team="blue")
    reply = charlie.post("/uploads/fetch", {"url": ADDRESS, "secret": "HUB"})
    assert (reply.status_code, reply.json()["code"]) == (422, "unknown_secret")


def test_after_a_rotation_the_old_key_may_go(kept: Any, settings: Any, clock: Any) -> None:
    old = settings.SECRET_KEY

    def keys(*texts: str) -> None:
        settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, secrets_keys=list(texts))

    keys("new")
    reply = kept.post("/uploads/fetch", {"url": ADDRESS, "secret": "HUB"})
    assert (reply.status_code, reply.json()["code"]) == (409, "secret_invalid"), "the key is missing"
    with pytest.raises(CommandError, match="OOLONG_SECRETS_KEYS"):
        call_command("rotate_secrets")
    keys("new", old)
    out = io.StringIO()
    for _ in range(2):
        call_command("rotate_secrets", stdout=out)
    assert out.getvalue().splitlines() == [
        "1 secrets are sealed with the newest key now", "0 secrets are sealed with the newest key now",
    ]  # fmt: skip
    keys("new")
    assert secret_services.reveal(kept.project.pk, ["HUB"], for_what="a test", now=clock.now) == {
        "HUB": VALUE
    }


def test_a_sealed_value_opens_nowhere_else(kept: Any, clock: Any) -> None:
    kept.post("/secrets", {"name": "OTHER", "value": "x"})
    stolen = ProjectSecret.objects.get(name="HUB")
    ProjectSecret.objects.filter(name="OTHER").update(sealed=bytes(stolen.sealed), key_id=stolen.key_id)
    with pytest.raises(Problem, match="was changed or belongs elsewhere"):
        secret_services.reveal(kept.project.pk, ["OTHER"], for_what="a test", now=clock.now)


def test_a_fingerprint_changes_with_the_value_and_cannot_be_guessed_without_the_key(
    alice: Any, settings: Any
) -> None:
    def fingerprint(value: str, name: str = "PIN") -> str:
        return str(alice.post("/secrets", {"name": name, "value": value}).json()["fingerprint"])

    first = fingerprint("0000")
    assert fingerprint("0000") == first
    assert len({first, fingerprint("0001"), fingerprint("0000", "OTHER")}) == 3, "of the value and its place"
    plain = {hashlib.sha256(f"{n:04}".encode()).hexdigest()[:8] for n in range(10_000)}
    assert first not in plain, "a digest of the value alone is found by trying all of them"
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, secrets_keys=["another key"])
    assert fingerprint("0000") != first


def test_a_rotation_makes_fingerprints_with_the_new_key(kept: Any, settings: Any) -> None:
    ProjectSecret.objects.update(fingerprint="")  # as one that was unkeyed is left by its migration
    assert secret_services.rotate() == 1
    first = ProjectSecret.objects.get().fingerprint
    assert len(first) == 8 and secret_services.rotate() == 0
    settings.ENVIRONMENT = dataclasses.replace(
        settings.ENVIRONMENT, secrets_keys=["a new key", settings.SECRET_KEY]
    )
    assert secret_services.rotate() == 1
    assert ProjectSecret.objects.get().fingerprint not in (first, "")


def test_the_command_reads_the_value_from_stdin(oolong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(VALUE + "\n"))
    said = oolong("secret", "set", "HUB", "--host", "data.example.org")
    assert (said.code, VALUE in said.out + said.err) == (0, False)
    shown = json.loads(oolong("secret", "list", "--json").out)
    assert (shown[0]["name"], shown[0]["hosts"]) == ("HUB", ["data.example.org"])
    assert "HUB" in oolong("audit", "list", "--action", "secret.*").out
    assert oolong("secret", "delete", "HUB").code == 0
    assert oolong("secret", "delete", "HUB").code != 0
    assert oolong("secret", "set", "HUB", VALUE).code == 2, "no argument takes the value"
