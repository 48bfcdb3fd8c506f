"""Webhooks against a real receiver on this machine, which checks the signatures by its own code."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from control_plane.accounts.models import Role
from control_plane.core.infra.database import connect_parameters
from control_plane.core.infra.locks import tick_key
from control_plane.runs.models import Run
from control_plane.telemetry.alerts import alerts
from control_plane.webhooks import delivery, http, outbox, tasks
from control_plane.webhooks.backoff import RETRY_DELAYS, retry_delay
from control_plane.webhooks.event_types import EVENT_TYPES
from control_plane.webhooks.models import Delivery, Webhook, WebhookEvent
from control_plane.webhooks.url_policy import check_url
from oolong.system.safe_http import AddressBlocked, FetchFailed
from tests.support.pages import block
from tests.support.waiting import wait_until


class Receiver:
    """A small web server. What it answers is what the test says; what it got, it keeps."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status, self.text, self.location = 200, "thanks", ""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append({"headers": dict(self.headers), "body": body, "path": self.path})
                self.send_response(receiver.status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.end_headers()
                self.wfile.write(receiver.text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()


@pytest.fixture(scope="module")
def _receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def receiver(
    _receiver: Receiver, settings: Any, _own_store: None, monkeypatch: pytest.MonkeyPatch
) -> Receiver:
    for module, name in (
        (http, "SECONDS"),
        (http, "CONNECT_SECONDS"),
        (delivery, "TICK_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 60.0)  # a machine that stands still is no receiver that does
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, webhook_networks=["127.0.0.0/8"])
    _receiver.got.clear()
    _receiver.status, _receiver.text, _receiver.location = 200, "thanks", ""
    return _receiver


def verified(request: dict[str, Any], secret: str) -> dict[str, Any]:
    """The document of a request whose signature is right, after the text of the Standard Webhooks specification."""
    headers = {name.lower(): value for name, value in request["headers"].items()}
    to_sign = (
        headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + request["body"]
    )
    key = base64.b64decode(secret.split("_", 1)[1])
    expected = base64.b64encode(hmac.new(key, to_sign, hashlib.sha256).digest()).decode()
    assert f"v1,{expected}" in headers["webhook-signature"].split(" ")
    document: dict[str, Any] = json.loads(request["body"])
    assert document["id"] == headers["webhook-id"]
    return document


@pytest.fixture
def hook(alice: Any, receiver: Receiver) -> Any:
    return make(alice, receiver, ["run.*", "alert.*", "webhook.disabled"])


def make(person: Any, receiver: Receiver, events: list[str], name: str = "ci") -> Any:
    reply = person.post("/webhooks", {"name": name, "url": receiver.url, "events": events})
    assert reply.status_code == 201, reply.content
    return reply.json()


def deliver(clock: Any, seconds: float = 0.0) -> int:
    return delivery.deliver_due(now=clock.forward(seconds))


def deliveries(person: Any, hook: Any) -> Any:
    return person.get(f"/webhooks/{hook['id']}/deliveries").json()["data"]


def test_run_event_is_delivered_signed_once_with_its_links(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    run = alice.run()
    alice.post(f"/runs/{run['id']}/cancel")
    assert deliver(clock) == 1, "submission is no move; its end is one"
    (request,) = receiver.got
    document = verified(request, hook["secret"])
    assert (document["type"], document["project"]) == ("run.stopped", alice.project.pk)
    assert document["data"]["run"]["id"] == run["id"]
    assert document["data"]["run"]["reason"] == "cancelled_while_queued"
    assert request["path"] == "/hook?x=1"
    (shown,) = deliveries(alice, hook)
    assert (shown["state"], shown["tries"]) == ("DELIVERED", 1)
    assert shown["log"][0]["status"] == 200 and shown["log"][0]["excerpt"] == "thanks"
    assert deliver(clock, 3600) == 0, "once is enough"


def test_rolled_back_event_is_not_delivered(alice: Any, hook: Any, clock: Any) -> None:
    with transaction.atomic():
        outbox.emit(alice.project.pk, "run.failed", {}, now=clock.now)
        transaction.set_rollback(True)
    assert not WebhookEvent.objects.exists()
    with pytest.raises(KeyError), transaction.atomic():
        outbox.emit(alice.project.pk, "run.vanished", {}, now=clock.now)


def test_only_subscribed_events_are_stored(alice: Any, person: Any, receiver: Receiver, clock: Any) -> None:
    make(alice, receiver, ["checkpoint.*"])
    bob = person("bob", team="blue")
    make(bob, receiver, ["*"])
    with transaction.atomic():
        outbox.emit(alice.project.pk, "run.failed", {}, now=clock.now)
    assert not WebhookEvent.objects.exists()


def test_a_failure_is_tried_again_for_a_day_with_growing_waits_and_the_same_id(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    receiver.status, receiver.text = 503, "busy"
    alice.post(f"/webhooks/{hook['id']}/test")
    began, sent = clock.now, 0
    while Delivery.objects.filter(state="PENDING").exists():
        sent += deliver(clock)
        pending = Delivery.objects.filter(state="PENDING").first()
        if pending is not None:
            assert deliver(clock) == 0, "not before its time"
            clock.now = pending.next_at
    assert sent == len(receiver.got) == len(RETRY_DELAYS) + 1
    assert timedelta(hours=18) < clock.now - began < timedelta(hours=30)
    assert len({request["headers"]["webhook-id"] for request in receiver.got}) == 1
    (shown,) = deliveries(alice, hook)
    assert (shown["state"], shown["message"]) == ("FAILED", "answered with status 503")
    assert [row["number"] for row in shown["log"]] == list(range(1, len(RETRY_DELAYS) + 2))


def test_the_waits_are_some_24_hours_with_jitter_either_way() -> None:
    assert timedelta(hours=23) < sum(RETRY_DELAYS, timedelta()) < timedelta(hours=25)
    low, high = retry_delay(1, random=0.0), retry_delay(1, random=0.999)
    assert low is not None and high is not None and low < RETRY_DELAYS[0] < high
    assert retry_delay(len(RETRY_DELAYS) + 1, random=0.5) is None


def test_after_a_rotation_both_secrets_sign_for_a_day(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    rotated = alice.post(f"/webhooks/{hook['id']}/rotate-secret").json()
    assert rotated["secret"] != hook["secret"] and rotated["secret"].startswith("whsec_")
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    for secret in (hook["secret"], rotated["secret"]):
        verified(receiver.got[0], secret)
    clock.forward(25 * 3600)
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    verified(receiver.got[1], rotated["secret"])
    with pytest.raises(AssertionError):
        verified(receiver.got[1], hook["secret"])


def test_secret_is_shown_once_and_stored_encrypted(alice: Any, hook: Any) -> None:
    for shown in (alice.get(f"/webhooks/{hook['id']}"), alice.get("/webhooks")):
        assert b"whsec_" not in shown.content
    assert hook["secret"].encode() not in bytes(Webhook.objects.get().secret)


def test_a_receiver_that_fails_for_a_day_is_turned_off_and_others_are_notified(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    other = make(alice, receiver, ["webhook.disabled"], name="other")
    receiver.status = 500
    for _ in range(3):
        alice.post(f"/webhooks/{hook['id']}/test")
        deliver(clock)
        clock.forward(13 * 3600)
    shown = alice.get(f"/webhooks/{hook['id']}").json()
    assert shown["enabled"] is False and "failed for a day" in shown["disabled_reason"]
    assert {row["state"] for row in deliveries(alice, hook)} == {"FAILED"}
    assert [row["event"]["type"] for row in deliveries(alice, other)] == ["webhook.disabled"]
    refused = alice.post(f"/webhooks/{hook['id']}/test")
    assert (refused.status_code, refused.json()["code"]) == (409, "webhook_disabled")
    back = alice.call("PATCH", f"/webhooks/{hook['id']}", {"enabled": True}).json()
    assert (back["enabled"], back["disabled_reason"], back["failing_since"]) == (True, "", None)


def test_one_success_forgives_and_gone_means_gone(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    receiver.status = 500
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    assert alice.get(f"/webhooks/{hook['id']}").json()["failing_since"] is not None
    receiver.status = 204
    deliver(clock, 60)
    assert alice.get(f"/webhooks/{hook['id']}").json()["failing_since"] is None
    receiver.status = 410
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    assert "410" in alice.get(f"/webhooks/{hook['id']}").json()["disabled_reason"]


def test_redeliver_sends_the_same_event_again_and_not_a_pending_one(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    made = alice.post(f"/webhooks/{hook['id']}/test").json()
    refused = alice.post(f"/webhook-deliveries/{made['id']}/redeliver")
    assert (refused.status_code, refused.json()["code"]) == (409, "pending")
    deliver(clock)
    again = alice.post(f"/webhook-deliveries/{made['id']}/redeliver")
    assert again.status_code == 202 and again.json()["id"] != made["id"]
    deliver(clock)
    first, second = receiver.got
    assert first["headers"]["webhook-id"] == second["headers"]["webhook-id"]
    assert first["body"] == second["body"]


def test_a_redirect_is_not_followed_and_an_answer_is_stored_in_part(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    receiver.status, receiver.location, receiver.text = 302, "http://127.0.0.1:1/", "x" * 100_000
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    assert len(receiver.got) == 1
    (row,) = deliveries(alice, hook)[0]["log"]
    assert row["error"] == "redirects are not followed" and len(row["excerpt"]) == 2000


def test_an_address_is_judged_again_at_every_delivery(
    alice: Any, hook: Any, receiver: Receiver, clock: Any, settings: Any
) -> None:
    alice.post(f"/webhooks/{hook['id']}/test")
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, webhook_networks=[])
    deliver(clock)
    assert receiver.got == []
    (row,) = deliveries(alice, hook)[0]["log"]
    assert row["status"] is None and "127.0.0.1" in row["error"]


def test_a_claim_keeps_others_away_until_it_ends_and_a_late_answer_counts_for_nothing(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    alice.post(f"/webhooks/{hook['id']}/test")
    (mine,) = delivery._claim(clock.now)
    assert delivery._claim(clock.now) == []
    (theirs,) = delivery._claim(clock.forward(61))
    delivery._record_response(mine, delivery.DeliveryResponse(500, 1), now=clock.now)
    assert Delivery.objects.get().tries == 0
    delivery._record_response(theirs, delivery.DeliveryResponse(200, 1), now=clock.now)
    assert Delivery.objects.get().state == "DELIVERED"


def test_a_slow_receiver_takes_no_more_than_its_share(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    other = make(alice, receiver, ["run.*"], name="other")
    for _ in range(delivery.MAX_IN_FLIGHT):
        alice.post(f"/webhooks/{hook['id']}/test")
    alice.post(f"/webhooks/{other['id']}/test")
    assert deliver(clock) == delivery.MAX_PER_WEBHOOK + 1


def test_a_backlog_of_one_webhook_does_not_starve_the_others(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    others = [make(alice, receiver, ["run.*"], name=f"other {number}") for number in range(5)]
    event = WebhookEvent.objects.create(project=alice.project, type="webhook.test", data={}, at=clock.now)
    old = clock.now - timedelta(hours=1)
    for loud in (hook, *others[:4]):  # as many as fill a tick with their oldest
        Delivery.objects.bulk_create(
            Delivery(webhook_id=loud["id"], event=event, next_at=old, created_at=old)
            for _ in range(delivery.MAX_IN_FLIGHT * 8 + 1)
        )
    alice.post(f"/webhooks/{others[4]['id']}/test")
    taken = [delivery.webhook_id for delivery in delivery._claim(clock.now)]
    assert others[4]["id"] in taken and len(taken) == delivery.MAX_IN_FLIGHT
    assert max(taken.count(loud["id"]) for loud in (hook, *others)) <= delivery.MAX_PER_WEBHOOK


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"url": "http://127.0.0.1/a\x01b"}, "control character"),
        ({"url": "https://bücher.example/"}, "xn--"),
        ({"secret_key_id": "gone"}, "OOLONG_SECRETS_KEYS"),
    ],
)
def test_what_is_wrong_with_one_webhook_is_its_own_failure_and_no_others(
    alice: Any, hook: Any, receiver: Receiver, clock: Any, broken: dict[str, str], told: str
) -> None:
    other = make(alice, receiver, ["run.*"], name="other")
    Webhook.objects.filter(pk=hook["id"]).update(**broken)
    for each in (hook, other):
        alice.post(f"/webhooks/{each['id']}/test")
    assert deliver(clock) == 2
    (failed,), (sent,) = deliveries(alice, hook), deliveries(alice, other)
    assert (sent["state"], failed["state"], failed["tries"]) == ("DELIVERED", "PENDING", 1)
    assert told in failed["message"]
    assert deliver(clock) == 0, "it is tried again at its time, not at once"


def test_an_answer_that_cannot_be_noted_leaves_the_others(
    alice: Any, hook: Any, receiver: Receiver, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make(alice, receiver, ["run.*"], name="other")
    for each in (hook, other):
        alice.post(f"/webhooks/{each['id']}/test")
    note = delivery._record_response

    def noted(delivery: Delivery, answer: Any, **rest: Any) -> None:
        if delivery.webhook_id == hook["id"]:
            raise RuntimeError("no")
        note(delivery, answer, **rest)

    monkeypatch.setattr(delivery, "_record_response", noted)
    deliver(clock)
    assert [deliveries(alice, each)[0]["state"] for each in (hook, other)] == ["PENDING", "DELIVERED"]


def test_a_tick_waits_for_nobody_longer_than_its_time(
    alice: Any, hook: Any, receiver: Receiver, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make(alice, receiver, ["run.*"], name="other")
    Webhook.objects.filter(pk=hook["id"]).update(url="https://a-name-server-that-is-silent.example/")
    for each in (hook, other):
        alice.post(f"/webhooks/{each['id']}/test")
    go_on, send, before = threading.Event(), delivery.post, set(threading.enumerate())

    def slow(url: str, *args: Any, **rest: Any) -> Any:
        if "silent" in url:
            go_on.wait(600)
            return http.failure("nobody asks any more")
        return send(url, *args, **rest)

    monkeypatch.setattr(delivery, "post", slow)
    monkeypatch.setattr(delivery, "TICK_SECONDS", 0.5)
    try:
        deliver(clock)
        (failed,) = deliveries(alice, hook)
        assert (failed["state"], failed["tries"]) == ("PENDING", 1) and "within 0.5 s" in failed["message"]
    finally:
        go_on.set()
        # The other one may still be on its way: not into the next test.
        wait_until(lambda: set(threading.enumerate()) <= before, "every delivery has ended")


@pytest.mark.parametrize(
    "begins",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["nothing", "headers", "a body"],
)
def test_a_receiver_that_drips_is_left(begins: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SECONDS", 0.4)
    left, dripped_out = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            link, _ = server.accept()
            with link:
                link.recv(65536)
                link.sendall(begins)
                for _ in range(1200):
                    try:
                        if begins:
                            link.sendall(b"x")
                    except OSError:
                        left.set()
                        return
                    if left.wait(0.05):
                        return
                dripped_out.set()

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        answer = http.post(url, b"{}", {}, networks=["127.0.0.0/8"])
        left.set()
    assert not answer.accepted
    assert "within 0.4 s" in answer.error or "Timeout" in answer.error, answer
    assert not dripped_out.is_set(), "it was heard to its end"


def test_one_worker_at_a_time_delivers(alice: Any, hook: Any, receiver: Receiver, clock: Any) -> None:
    alice.post(f"/webhooks/{hook['id']}/test")
    clock.forward(1)
    with psycopg.connect(**connect_parameters(), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [tick_key("deliver-webhooks")])
        tasks.deliver_webhooks()
        assert receiver.got == []
        other.execute("SELECT pg_advisory_unlock(%s)", [tick_key("deliver-webhooks")])
    tasks.deliver_webhooks()
    assert len(receiver.got) == 1


def test_one_failure_long_after_another_turns_nothing_off(
    alice: Any, hook: Any, receiver: Receiver, clock: Any
) -> None:
    receiver.status = 500
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    Delivery.objects.update(state="FAILED", ended_at=clock.now)  # given up
    clock.forward(14 * 86400)
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    shown = alice.get(f"/webhooks/{hook['id']}").json()
    assert shown["enabled"] is True and shown["failing_since"].startswith(f"{clock.now:%Y-%m-%d}")


def test_alerts_nodes_and_checkpoints_are_delivered(
    alice: Any, receiver: Receiver, node: Any, start: Any, clock: Any, tick: Any
) -> None:
    hook = make(alice, receiver, ["*"])
    machine = node()
    run = start(machine)
    attempt = machine.reply.attempts[0]
    machine.upload_checkpoint(attempt.attempt_id, attempt.epoch, step=3)
    stored = alice.get(f"/checkpoints?run={run['id']}").json()["data"][0]["id"]
    promoted = alice.call("PUT", "/checkpoint-aliases/best", {"checkpoint": stored})
    assert promoted.status_code in (200, 201), promoted.content
    row = Run.objects.get()
    with transaction.atomic():
        alerts._update_alerts(row, {"stalled": "no step"}, now=clock.now)
        alerts._update_alerts(row, {}, now=clock.now)
    for _ in range(7):
        tick(10)
    types = [row["event"]["type"] for row in deliveries(alice, hook)][::-1]
    for expected in (
        "run.starting",
        "run.running",
        "checkpoint.stored",
        "checkpoint.promoted",
        "alert.fired",
        "alert.resolved",
        "node.unresponsive",
    ):
        assert expected in types, types
    assert set(types) <= set(EVENT_TYPES)


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"events": ["run.exploded"]}, "/events/0", "unknown"),
        ({"events": []}, "/events", "min_length"),
        ({"url": "http://127.0.0.2.nip.example.invalid/x"}, "/url", "address_blocked"),
        ({"url": "https://10.0.0.7/x"}, "/url", "address_blocked"),
        ({"url": "https://169.254.169.254/latest"}, "/url", "address_blocked"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "/url", "address_blocked"),
        ({"url": "https://user:pass@93.184.216.34/"}, "/url", "address_blocked"),
        ({"url": "ftp://93.184.216.34/"}, "/url", "address_blocked"),
        ({"url": "http://93.184.216.34/"}, "/url", "address_blocked"),
        ({"url": "https://93.184.216.34:22/"}, "/url", "address_blocked"),
        ({"url": "http://127.0.0.1/a\x01b"}, "/url", "address_blocked"),
        ({"url": "http://127.0.0.1/a\tb"}, "/url", "address_blocked"),
        ({"url": "https://bücher.example/"}, "/url", "address_blocked"),
        ({"name": ""}, "/name", "blank"),
        ({"secret": "mine"}, "/secret", "unknown_key"),
    ],
)
def test_what_cannot_be_a_webhook_is_refused_with_its_field(
    alice: Any, receiver: Receiver, body: dict[str, Any], pointer: str, code: str
) -> None:
    whole = {"name": "ci", "url": receiver.url, "events": ["run.*"], **body}
    refused = alice.post("/webhooks", whole)
    assert refused.status_code == 422, refused.content
    assert (refused.json()["errors"][0]["pointer"], refused.json()["errors"][0]["code"]) == (pointer, code)
    assert not Webhook.objects.exists()


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"url": "https://10.0.0.7/x"}, "/url", "address_blocked"),
        ({"events": ["run.exploded"]}, "/events/0", "unknown"),
        ({"enabled": "maybe"}, "/enabled", "invalid"),
    ],
)
def test_what_no_webhook_can_become_is_refused_and_it_stays_as_it_was(
    alice: Any, hook: Any, change: dict[str, Any], pointer: str, code: str
) -> None:
    before = alice.get(f"/webhooks/{hook['id']}").json()
    refused = alice.call("PATCH", f"/webhooks/{hook['id']}", change)
    [error] = refused.json()["errors"]
    assert (refused.status_code, error["pointer"], error["code"]) == (422, pointer, code)
    assert alice.get(f"/webhooks/{hook['id']}").json() == before


def test_a_name_behind_which_one_address_is_private_is_refused() -> None:
    public, private = "93.184.216.34", "192.168.1.7"
    with pytest.raises(AddressBlocked, match="not at a public address, nor in a network"):
        check_url("https://twice.example/", resolve=lambda host, port: [public, private])
    with pytest.raises(AddressBlocked, match="xn--"):
        check_url("https://bücher.example/", resolve=lambda host, port: [public])
    with pytest.raises(FetchFailed):
        check_url("https://nobody.example/", resolve=lambda host, port: [])
    check_url(
        "http://inside.example:9000/x", networks=["192.168.0.0/16"], resolve=lambda host, port: [private]
    )


def test_two_webhooks_of_one_name_and_a_caller_who_is_no_admin_are_refused(
    alice: Any, person: Any, hook: Any, receiver: Receiver
) -> None:
    again = alice.post("/webhooks", {"name": "ci", "url": receiver.url, "events": ["*"]})
    assert (again.status_code, again.json()["code"]) == (409, "name_taken")
    bob = person("bob", role=Role.OPERATOR)
    assert bob.get("/webhooks").status_code == 403
    charlie = person("charlie", team="blue")
    assert charlie.get(f"/webhooks/{hook['id']}").status_code == 404
    assert charlie.call("DELETE", f"/webhooks/{hook['id']}").status_code == 404


def test_the_server_key_can_be_changed_under_the_secrets(
    alice: Any, hook: Any, receiver: Receiver, clock: Any, settings: Any
) -> None:
    from django.core.management import call_command

    old = settings.SECRET_KEY
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, secrets_keys=["new" * 12, old])
    call_command("rotate_secrets")
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, secrets_keys=["new" * 12])
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    verified(receiver.got[0], hook["secret"])


def test_what_ended_long_ago_is_forgotten(alice: Any, hook: Any, receiver: Receiver, clock: Any) -> None:
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    assert delivery.prune_old(now=clock.forward(29 * 86400)) == 0
    assert delivery.prune_old(now=clock.forward(2 * 86400)) > 0
    assert not WebhookEvent.objects.exists()
    assert connection.in_atomic_block


def test_the_receivers_code_on_the_page_accepts_what_is_sent_and_nothing_else(
    alice: Any, hook: Any, receiver: Receiver, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[4] / "docs" / "how-to" / "webhooks.md"
    named: dict[str, Any] = {}
    exec(block(page, "python"), named)
    alice.post(f"/webhooks/{hook['id']}/test")
    deliver(clock)
    (request,) = receiver.got
    headers = {name.lower(): value for name, value in request["headers"].items()}
    monkeypatch.setattr(named["time"], "time", lambda: clock.now.timestamp())
    named["check"](hook["secret"], headers, request["body"])
    with pytest.raises(ValueError, match="not from"):
        named["check"](hook["secret"], headers, request["body"] + b" ")
    monkeypatch.setattr(named["time"], "time", lambda: clock.now.timestamp() + 301)
    with pytest.raises(ValueError, match="too old"):
        named["check"](hook["secret"], headers, request["body"])
    for type in set(EVENT_TYPES) - {"webhook.test"}:
        assert f"`{type}`" in page.read_text()


def test_the_command_makes_tests_and_reads_a_webhook(oolong: Any, receiver: Receiver, clock: Any) -> None:
    made = oolong("webhook", "create", "--name", "ci", "--url", receiver.url, "--event", "run.*", "--json")
    assert made.code == 0, made.err
    hook = json.loads(made.out)
    oolong("webhook", "test", hook["id"])
    deliver(clock)
    verified(receiver.got[0], hook["secret"])
    assert "\twebhook.test\tDELIVERED\t1\t200\t" in oolong("webhook", "deliveries", hook["id"]).out
    assert oolong("webhook", "rotate", hook["id"]).out.startswith("whsec_")
    assert oolong("webhook", "set", hook["id"], "--off").out == f"{hook['id']} is off\n"
    assert oolong("webhook", "test", hook["id"]).code == 2
    assert "turned off by hand" in oolong("webhook", "list").out
    assert oolong("webhook", "create", "--name", "x", "--url", "https://10.0.0.1/", "--event", "*").code == 2
    assert oolong("webhook", "delete", hook["id"]).code == 0
