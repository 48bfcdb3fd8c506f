"""Prices of slots: what a pool charges for an hour, by device and GPU model."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from django.db import transaction
from django.db.models import QuerySet

from control_plane.fleet import pools
from control_plane.fleet.models import Pool, Slot, SlotPrice


def prices_of(pool: str) -> QuerySet[SlotPrice]:
    """The prices of a pool, those of a device before those of its models."""
    return SlotPrice.objects.filter(pool=pool).order_by("device", "gpu_model")


def price_of(slot: Slot, prices: Iterable[SlotPrice]) -> Decimal | None:
    """The price of the slot's model, else that of its device; None without either."""
    by_model = {price.gpu_model: price.per_hour for price in prices if price.device == slot.device}
    return by_model.get(slot.model, by_model.get(""))


def set_price(pool: Pool, *, device: str, gpu_model: str, per_hour: Decimal | None) -> None:
    """Set the price for leases that are granted from now on, or remove it. A no-op is not audited."""
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        row = SlotPrice.objects.filter(pool=pool, device=device, gpu_model=gpu_model).first()
        before = None if row is None else row.per_hour
        if before == per_hour:
            return
        if per_hour is None:
            assert row is not None  # else before == per_hour
            row.delete()
        else:
            SlotPrice.objects.update_or_create(
                pool=pool, device=device, gpu_model=gpu_model, defaults={"per_hour": per_hour}
            )
        change = {"before": _text(before), "after": _text(per_hour)}
        pools.record_audit(
            "pool.set_price", pool, data={"device": device, "gpu_model": gpu_model, "per_hour": change}
        )


def _text(price: Decimal | None) -> str | None:
    return None if price is None else str(price)
