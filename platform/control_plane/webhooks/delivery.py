"""Send due deliveries. A worker claims them (SKIP LOCKED, with a lease), sends them outside of any transaction, and
records the responses if it still holds the claim. A worker that dies only delays them."""

from __future__ import annotations

import json
import logging
import random
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q, Window
from django.db.models.functions import Random, RowNumber

from control_plane.accounts.audit import audit_log
from control_plane.core.infra.clock import rfc3339
from control_plane.core.infra.isolate_errors import isolate_errors
from control_plane.core.security.encryption import decrypt
from control_plane.webhooks import outbox, signing
from control_plane.webhooks.backoff import DISABLE_AFTER, retry_delay
from control_plane.webhooks.http import DeliveryResponse, failure, post
from control_plane.webhooks.models import Delivery, DeliveryState, DeliveryTry, Webhook, WebhookEvent
from control_plane.webhooks.signing_secrets import active_secrets

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 16  # requests under way in one tick
MAX_PER_WEBHOOK = 4  # of these, so that one slow receiver does not stand in the way of the others
TICK_SECONDS = 6.0  # a tick's wait for its answers; a little more than posting.SECONDS, which tells more
CLAIM = timedelta(seconds=60)
MAX_BODY_BYTES = 64 * 1024
RETENTION = timedelta(days=30)


def deliver_due(*, now: datetime) -> int:
    """Send what is due, once. Returns how many were sent."""
    claimed = _claim(now)
    if not claimed:
        return 0
    for delivery, answer in _send_all(claimed, now):
        # A delivery whose response cannot be recorded is sent again when its claim expires.
        with isolate_errors(f"noting the answer to delivery {delivery.pk}"), transaction.atomic():
            _record_response(delivery, answer, now=now)
    return len(claimed)


def _send_all(claimed: Sequence[Delivery], now: datetime) -> Iterator[tuple[Delivery, DeliveryResponse]]:
    """One answer for each, when it arrives; for those that have none in TICK_SECONDS, that they took too long."""
    networks = settings.ENVIRONMENT.webhook_networks
    pool = ThreadPoolExecutor(MAX_IN_FLIGHT)  # these threads know no database
    in_flight: dict[Future[DeliveryResponse], Delivery] = {
        pool.submit(_send, delivery, now, networks): delivery for delivery in claimed
    }
    try:
        for done in as_completed(list(in_flight), timeout=TICK_SECONDS):
            yield in_flight.pop(done), done.result()
    except TimeoutError:
        message = f"there was no answer within {TICK_SECONDS:g} s"
        for future, delivery in in_flight.items():
            late = failure(message, milliseconds=int(TICK_SECONDS * 1000))
            yield delivery, future.result() if future.done() and not future.cancelled() else late
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _send(delivery: Delivery, now: datetime, networks: Sequence[str]) -> DeliveryResponse:
    """Never raises: an error of one delivery becomes its response, and concerns no other."""
    try:
        return post(*_request(delivery, now), networks=networks)
    except Exception as error:
        log.exception("delivery %s could not be sent", delivery.pk)
        return failure(f"it could not be sent: {type(error).__name__}: {error}")


def prune_old(*, now: datetime) -> int:
    """Deliveries that ended long ago, with their events."""
    old = Delivery.objects.exclude(state=DeliveryState.PENDING).filter(ended_at__lt=now - RETENTION)
    gone, _ = old.delete()
    from_nobody = Q(deliveries=None, at__lt=now - RETENTION)
    WebhookEvent.objects.filter(from_nobody).delete()
    return gone


def _claim(now: datetime) -> list[Delivery]:
    due = Q(state=DeliveryState.PENDING, next_at__lte=now) & (
        Q(claimed_until=None) | Q(claimed_until__lt=now)
    )
    with transaction.atomic():
        # The oldest of every webhook before the second of any; of more webhooks than fit, any of them: none waits
        # behind the backlog of others.
        in_line = Window(RowNumber(), partition_by=[F("webhook_id")], order_by=[F("next_at"), F("pk")])
        chosen = (
            Delivery.objects.filter(due)
            .annotate(place=in_line)
            .filter(place__lte=MAX_PER_WEBHOOK)
            .order_by("place", Random())
            .values_list("pk", flat=True)[:MAX_IN_FLIGHT]
        )
        taken = list(
            Delivery.objects.select_for_update(skip_locked=True, of=("self",))
            .filter(due, pk__in=list(chosen))
            .select_related("webhook", "event")
        )
        for delivery in taken:
            delivery.claim, delivery.claimed_until = secrets.token_hex(16), now + CLAIM
        Delivery.objects.bulk_update(taken, ["claim", "claimed_until"])
    return taken


def _request(delivery: Delivery, now: datetime) -> tuple[str, bytes, dict[str, str]]:
    """URL, body and headers."""
    event = delivery.event
    envelope = {
        "type": event.type, "timestamp": rfc3339(event.at), "id": event.pk, "project": event.project_id,
        "data": event.data,
    }  # fmt: skip
    body = json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > MAX_BODY_BYTES:
        body = json.dumps({**envelope, "data": {"too_large": True}}, ensure_ascii=False).encode()
    keys = [decrypt(sealed, place=place) for sealed, place in active_secrets(delivery.webhook, now=now)]
    return delivery.webhook.url, body, signing.headers(event.pk, int(now.timestamp()), body, keys)


def _record_response(delivery: Delivery, answer: DeliveryResponse, *, now: datetime) -> None:
    webhook = Webhook.objects.select_for_update().filter(pk=delivery.webhook_id).first()
    held = Delivery.objects.select_for_update().filter(pk=delivery.pk, claim=delivery.claim).first()
    if webhook is None or held is None:
        return  # it was deleted, or another worker has claimed it
    failing_since = _failing_since(webhook, now)
    held.tries += 1
    held.claim, held.claimed_until = "", None
    DeliveryTry.objects.create(
        delivery=held, number=held.tries, at=now, status=answer.status, milliseconds=answer.milliseconds,
        error=answer.error, excerpt=answer.excerpt,
    )  # fmt: skip
    if answer.accepted:
        held.state, held.ended_at, held.message = DeliveryState.DELIVERED, now, ""
        webhook.failing_since = None
    else:
        held.message = answer.error or f"answered with status {answer.status}"
        wait = retry_delay(held.tries, random=random.random())
        if wait is None or not webhook.enabled:
            held.state, held.ended_at = DeliveryState.FAILED, now
        else:
            held.next_at = now + wait
        webhook.failing_since = failing_since
    held.save()
    webhook.save(update_fields=["failing_since"])
    gone = answer.status == 410
    if webhook.enabled and not answer.accepted and (gone or now - failing_since >= DISABLE_AFTER):
        why = (
            "the receiver answered 410 Gone"
            if gone
            else f"every delivery has failed for a day: {held.message}"
        )
        disable(webhook, why, now=now)


def _failing_since(webhook: Webhook, now: datetime) -> datetime:
    """Since when it fails, should this try fail too: a day without a try is the end of an earlier failure."""
    since = webhook.failing_since
    if since is None:
        return now
    if now - since < DISABLE_AFTER:
        return since
    last = DeliveryTry.objects.filter(delivery__webhook=webhook).aggregate(at=Max("at"))["at"]
    return since if last is not None and now - last < DISABLE_AFTER else now


def disable(webhook: Webhook, why: str, *, now: datetime) -> None:
    """Disable the webhook, fail its pending deliveries and notify the other webhooks. The caller holds the row."""
    webhook.enabled, webhook.disabled_reason, webhook.updated_at = False, why[:400], now
    webhook.save(update_fields=["enabled", "disabled_reason", "updated_at"])
    webhook.deliveries.filter(state=DeliveryState.PENDING).update(
        state=DeliveryState.FAILED,
        ended_at=now,
        message="the webhook was turned off",
        claim="",
        claimed_until=None,
    )
    audit_log.record(
        "webhook.disable",
        target=("webhook", webhook.pk, webhook.name),
        project=webhook.project_id,
        message=why,
        at=now,
    )
    shown = {"webhook": {"id": webhook.pk, "name": webhook.name}, "why": why}
    outbox.emit(webhook.project_id, "webhook.disabled", shown, now=now)
