"""The audit log: what is written, that it stays as it was written, and who may read it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, connections, transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.models import AuditEntry, Project, Role, Team
from control_plane.accounts.tokens.stream_ticket import StreamTicket
from control_plane.core.security.request_context import origin
from control_plane.fleet.models import Node


def actions(person: Any, query: str = "") -> list[str]:
    """Oldest first."""
    return [entry["action"] for entry in person.get(f"/audit?limit=200{query}").json()["data"]][::-1]


def test_an_entry_says_who_did_what_to_what_and_from_where(alice: Any) -> None:
    run = alice.run(name="mine")
    alice.post(f"/runs/{run['id']}/cancel", **{"x-request-id": "req-of-the-cancel"})
    entry = alice.get("/audit").json()["data"][0]
    assert (entry["action"], entry["actor"]["name"], entry["address"]) == ("run.cancel", "alice", "127.0.0.1")
    assert entry["actor"]["kind"] == "user" and entry["actor"]["token_id"].startswith("tok_")
    assert entry["target"] == {"kind": "run", "id": run["id"], "name": "mine"}
    assert (entry["request_id"], entry["data"]) == ("req-of-the-cancel", {"status": "QUEUED"})
    assert origin().actor_kind == "system", "the request is over"


def test_what_people_do_is_in_the_log(alice: Any, node: Any, start: Any) -> None:
    machine = node()
    run = start(machine)
    alice.post(f"/runs/{run['id']}/runtime", {"changes": {"staleness": {"max": 2}}})
    alice.post(f"/runs/{run['id']}/pause")
    alice.post(f"/runs/{run['id']}/stop")
    alice.call("PATCH", f"/runs/{run['id']}", {"notes": "tried"})
    alice.post(f"/pool/nodes/{machine.node_id}/drain")
    alice.post("/pools/default/join-tokens")
    made = alice.post("/tokens", {"name": "ci", "scopes": ["runs:read"]}).json()
    alice.call("DELETE", f"/tokens/{made['id']}")
    alice.call("PATCH", "/project", {"tested_rewards": True})
    assert actions(alice)[-10:] == [
        "run.create", "run.change", "run.pause", "run.stop", "run.edit", "node.intent", "pool.join_token",
        "token.create", "token.revoke", "project.tested_rewards",
    ]  # fmt: skip
    assert made["token"] not in alice.get("/audit/export").getvalue().decode()


def test_the_command_exports_the_whole_log_or_nothing(alice: Any, oolong: Any) -> None:
    run = alice.run(name="mine\u2028too")
    alice.post(f"/runs/{run['id']}/cancel")
    assert oolong("audit", "export", "-o", "audit.jsonl").code == 0
    lines = [json.loads(line) for line in Path("audit.jsonl").read_bytes().split(b"\n")[:-1]]
    assert [line["action"] for line in lines] == actions(alice)
    assert {line["target_name"] for line in lines if line["target_kind"] == "run"} == {"mine\u2028too"}
    cancelled = oolong("audit", "export", "-o", "-", "--format", "csv", "--action", "run.cancel")
    (row,) = csv.DictReader(io.StringIO(cancelled.out))
    assert row["target_id"] == run["id"]
    refused = oolong("audit", "export", "-o", "none.jsonl", "--since", "yesterday")
    assert refused.code == 2 and "yesterday" in refused.err
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["audit.jsonl"]


def test_a_stream_ticket_is_shown(alice: Any, oolong: Any) -> None:
    shown = json.loads(oolong("stream", "ticket", "--json").out)
    assert set(shown) == {"ticket", "expires_at"} and StreamTicket.objects.count() == 1
    assert len(oolong("stream", "ticket").out.strip()) > 20


def test_what_is_refused_leaves_no_entry_of_a_change(alice: Any) -> None:
    run = alice.run()
    before = AuditEntry.objects.count()
    assert alice.post(f"/runs/{run['id']}/resume").status_code == 409
    assert alice.post("/runs", {"spec": {}}).status_code == 422
    assert AuditEntry.objects.count() == before


def test_a_failed_login_and_a_login_are_written_down(alice: Any, settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    alice.user.set_password("open sesame")
    alice.user.save()
    for name, password in (("alice", "wrong"), ("nobody", "x"), ("alice", "open sesame")):
        body = json.dumps({"username": name, "password": password})
        alice.client.post("/api/v1/session", data=body, content_type="application/json")
    alice.client.delete("/api/v1/session")
    assert actions(alice, "&action=log*") == ["login.failed", "login", "logout"]
    failed = alice.get("/audit?action=login.failed").json()["data"][0]
    assert (failed["actor"]["kind"], failed["target"]["name"]) == ("anonymous", "alice")
    assert AuditEntry.objects.get(target_name="nobody").project == "", "an unknown name is the installation's"
    assert "sesame" not in json.dumps(list(AuditEntry.objects.values("message", "data")))


def test_a_node_that_joins_is_written_down(alice: Any, node: Any) -> None:
    node("newcomer")
    entries = AuditEntry.objects.filter(action="node.enroll")
    assert {entry.target_id for entry in entries} == {Node.objects.get().pk}
    assert {entry.project for entry in entries} == {"", alice.project.pk}, (
        "the installation's log, and each project's"
    )


def test_the_database_refuses_to_change_or_delete_an_entry(alice: Any) -> None:
    alice.run()
    audit_log.append_to_chain()
    attempts = [
        "UPDATE accounts_auditentry SET message = 'never happened'",
        "UPDATE accounts_auditentry SET number = NULL, sha256 = ''",
        "DELETE FROM accounts_auditentry",
        "TRUNCATE accounts_auditentry",
    ]
    cursor = connection.cursor()
    # Off in the test database, see tests/conftest.py.
    cursor.execute("ALTER TABLE accounts_auditentry ENABLE TRIGGER audit_table")
    for attempt in attempts:
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute(attempt)
    fresh = audit_log.record("later", project=alice.project.pk)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        AuditEntry.objects.filter(pk=fresh.pk).update(
            number=99, sha256="f" * 64, message="sealed and changed"
        )


def tamper(statement: str, *values: Any) -> None:
    """What the owner of the table can do."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER USER")
        cursor.execute(statement, values)
        cursor.execute("ALTER TABLE accounts_auditentry ENABLE TRIGGER audit_rows")


def test_verify_names_the_first_entry_that_was_changed(alice: Any) -> None:
    for name in ("one", "two", "three"):
        alice.run(name=name)
    out = io.StringIO()
    call_command("audit", "verify", stdout=out)
    number, head = audit_log.head(alice.project.pk)
    assert f"{alice.project.pk}: {number} entries hold, head {head}" in out.getvalue()
    victim = AuditEntry.objects.get(target_name="two")
    tamper("UPDATE accounts_auditentry SET actor_name = 'bob' WHERE id = %s", victim.pk)
    with pytest.raises(CommandError, match=rf"entry number {victim.number} \(id {victim.pk}, run.create"):
        call_command("audit", "verify", stdout=out)


def test_verify_names_an_entry_that_was_taken_out(alice: Any) -> None:
    for name in ("one", "two", "three"):
        alice.run(name=name)
    audit_log.append_to_chain()
    victim = AuditEntry.objects.get(target_name="two")
    tamper("DELETE FROM accounts_auditentry WHERE id = %s", victim.pk)
    with pytest.raises(CommandError, match=f"entry number {victim.number} is missing"):
        call_command("audit", "verify", stdout=io.StringIO())


def test_the_state_of_a_chain_has_its_head_and_what_does_not_hold(
    alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.run(name="one")
    audit_log.append_to_chain()
    alice.run(name="two")
    number, head = audit_log.head(alice.project.pk)
    state = alice.get("/audit/chain").json()
    assert state == {"number": number, "sha256": head, "unsealed": 1, "checked": number, "broken": ""}
    audit_log.append_to_chain()
    victim = AuditEntry.objects.get(target_name="one", action="run.create")
    tamper("UPDATE accounts_auditentry SET actor_name = 'bob' WHERE id = %s", victim.pk)
    assert f"entry number {victim.number} " in alice.get("/audit/chain").json()["broken"]
    monkeypatch.setattr(audit_log, "CHECKED_AT_ONCE", 1)
    only_the_newest = alice.get("/audit/chain").json()
    assert (only_the_newest["checked"], only_the_newest["broken"]) == (1, "")


def test_an_exported_chain_can_be_checked_with_nothing_but_its_lines(alice: Any) -> None:
    alice.run(name="=cmd()")
    audit_log.append_to_chain()
    lines = [json.loads(line) for line in alice.get("/audit/export").getvalue().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
    previous = "0" * 64
    for line in lines:
        covered = {name: value for name, value in line.items() if name != "sha256"}
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert line["sha256"] == (previous := hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest())
    rows = list(csv.DictReader(io.StringIO(alice.get("/audit/export?format=csv").getvalue().decode())))
    assert [row["sha256"] for row in rows] == [line["sha256"] for line in lines]
    assert rows[-1]["target_name"] == "'=cmd()", "no formula for a spreadsheet"


def test_the_list_is_filtered_and_paged(alice: Any, person: Any, clock: Any) -> None:
    person("bob").run(name="of bob")
    moment = clock.forward(60).isoformat().replace("+00:00", "Z")
    run = alice.run(name="of alice")
    assert actions(alice, "&actor=bob") == ["run.create"]
    assert actions(alice, f"&target={run['id']}") == actions(alice, "&target=of%20alice") == ["run.create"]
    assert actions(alice, f"&since={moment}&action=run.*") == ["run.create"]
    assert len(actions(alice, f"&until={moment}&action=run.create")) == 1
    first = alice.get("/audit?limit=1").json()
    second = alice.get(f"/audit?limit=1&cursor={first['next_cursor']}").json()
    assert first["data"][0]["id"] > second["data"][0]["id"]


@pytest.mark.parametrize("query", ["since=yesterday", "until=0", "limit=0", "cursor=%21", "cursor=eA"])
def test_a_question_that_makes_no_sense_is_refused(alice: Any, query: str) -> None:
    reply = alice.get(f"/audit?{query}")
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["pointer"] == "/" + query.partition("=")[0]


def test_an_unknown_form_of_the_export_is_refused(alice: Any) -> None:
    assert alice.get("/audit/export?format=xml").json()["errors"][0]["pointer"] == "/format"


def test_only_admins_read_the_log_and_only_their_own(alice: Any, person: Any) -> None:
    alice.run(name="secret plan")
    assert person("dave", role=Role.EDITOR).get("/audit").status_code == 403
    assert person("erin", role=Role.VIEWER).get("/audit/export").status_code == 403
    charlie = person("charlie", team="blue")
    assert "secret plan" not in charlie.get("/audit").content.decode()
    assert "secret plan" not in charlie.get("/audit/export").getvalue().decode()


@pytest.mark.django_db(transaction=True)
def test_two_who_seal_at_once_make_one_chain() -> None:
    project = Project.objects.create(team=Team.objects.create(name="red"), name="default")
    for number in range(40):
        audit_log.record("count", project=project.pk, data={"number": number})
    gate = threading.Barrier(2)

    def seal() -> None:
        gate.wait()
        audit_log.append_to_chain()
        connections.close_all()

    both = [threading.Thread(target=seal) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    reports = list(audit_log.verify())
    assert [(report.entries, report.broken) for report in reports] == [(40, "")]


def test_project_events_are_the_logs_entries_of_the_project(alice: Any, person: Any) -> None:
    alice.call("PATCH", "/project", {"tested_rewards": True})
    seen = person("erin", role=Role.VIEWER).get("/project/events").json()["data"]
    assert [(event["kind"], event["actor"]) for event in seen] == [("tested_rewards", "alice")]
    assert actions(alice, "&action=project.*") == ["project.tested_rewards"]
