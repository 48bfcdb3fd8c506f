"""The tick that sends what is due. Deliveries are claimed (SKIP LOCKED, a lease), sent outside of any transaction, and
their answers written by whoever still holds the claim: a worker that dies only delays."""

from __future__ import annotations

import json
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from control_plane.accounts import audit
from control_plane.common.clock import rfc3339
from control_plane.common.sealing import unseal
from control_plane.webhooks import outbox, signing
from control_plane.webhooks.models import Delivery, DeliveryState, DeliveryTry, Webhook, WebhookEvent
from control_plane.webhooks.posting import Answer, post
from control_plane.webhooks.schedule import DISABLE_AFTER, wait_after
from control_plane.webhooks.secret_place import keys_of

AT_ONCE = 16  # requests under way in one tick
PER_WEBHOOK = 4  # of these, so that one slow receiver does not stand in the way of the others
CLAIM = timedelta(seconds=60)
MOST_BYTES = 64 * 1024
KEPT = timedelta(days=30)


def deliver_due(*, now: datetime) -> int:
    """Send what is due, once. Returns how many were sent."""
    claimed = _claim(now)
    if not claimed:
        return 0
    networks = settings.ENVIRONMENT.webhook_networks
    calls = [partial(post, *_request(delivery, now), networks=networks) for delivery in claimed]
    with ThreadPoolExecutor(AT_ONCE) as pool:  # these threads know no database
        answers = list(pool.map(lambda call: call(), calls))
    for delivery, answer in zip(claimed, answers, strict=True):
        with transaction.atomic():
            _note_answer(delivery, answer, now=now)
    return len(claimed)


def forget_old(*, now: datetime) -> int:
    """Deliveries that ended long ago, with their events."""
    old = Delivery.objects.exclude(state=DeliveryState.PENDING).filter(ended_at__lt=now - KEPT)
    gone, _ = old.delete()
    from_nobody = Q(deliveries=None, at__lt=now - KEPT)
    WebhookEvent.objects.filter(from_nobody).delete()
    return gone


def _claim(now: datetime) -> list[Delivery]:
    with transaction.atomic():
        due = (
            Delivery.objects.select_for_update(skip_locked=True, of=("self",))
            .filter(
                Q(claimed_until=None) | Q(claimed_until__lt=now),
                state=DeliveryState.PENDING,
                next_at__lte=now,
            )
            .select_related("webhook", "event")
            .order_by("next_at", "pk")[: AT_ONCE * 8]
        )
        taken: list[Delivery] = []
        per_webhook: dict[str, int] = {}
        for delivery in due:
            count = per_webhook.get(delivery.webhook_id, 0)
            if count < PER_WEBHOOK and len(taken) < AT_ONCE:
                per_webhook[delivery.webhook_id] = count + 1
                taken.append(delivery)
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
    if len(body) > MOST_BYTES:
        body = json.dumps({**envelope, "data": {"too_large": True}}, ensure_ascii=False).encode()
    keys = [unseal(sealed, place=place) for sealed, place in keys_of(delivery.webhook, now=now)]
    return delivery.webhook.url, body, signing.headers(event.pk, int(now.timestamp()), body, keys)


def _note_answer(delivery: Delivery, answer: Answer, *, now: datetime) -> None:
    webhook = Webhook.objects.select_for_update().filter(pk=delivery.webhook_id).first()
    held = Delivery.objects.select_for_update().filter(pk=delivery.pk, claim=delivery.claim).first()
    if webhook is None or held is None:
        return  # it was deleted, or somebody else has it by now
    failing_since = webhook.failing_since or now
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
        wait = wait_after(held.tries, random=random.random())
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


def disable(webhook: Webhook, why: str, *, now: datetime) -> None:
    """Turn it off, with what waits for it; the project's other webhooks are told. The row is locked."""
    webhook.enabled, webhook.disabled_why, webhook.updated_at = False, why[:400], now
    webhook.save(update_fields=["enabled", "disabled_why", "updated_at"])
    webhook.deliveries.filter(state=DeliveryState.PENDING).update(
        state=DeliveryState.FAILED,
        ended_at=now,
        message="the webhook was turned off",
        claim="",
        claimed_until=None,
    )
    audit.record(
        "webhook.disable",
        target=("webhook", webhook.pk, webhook.name),
        project=webhook.project_id,
        message=why,
        at=now,
    )
    shown = {"webhook": {"id": webhook.pk, "name": webhook.name}, "why": why}
    outbox.emit(webhook.project_id, "webhook.disabled", shown, now=now)
