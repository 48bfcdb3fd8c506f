"""Endpoints for the prices of a pool's slots."""

from __future__ import annotations

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.fleet import access, prices
from control_plane.fleet.models import Pool

DEVICES = ("cpu", "cuda")


class SlotPriceSerializer(ResponseSerializer):
    device = serializers.ChoiceField(choices=DEVICES)
    gpu_model = serializers.CharField(help_text="empty: for every model of the device that has no price")
    per_hour = serializers.DecimalField(max_digits=12, decimal_places=4, coerce_to_string=True)


class PricesSerializer(ResponseSerializer):
    currency = serializers.CharField(help_text="of the installation: OOLONG_CURRENCY")
    prices = SlotPriceSerializer(many=True)


class PriceChangeSerializer(StrictSerializer):
    device = serializers.ChoiceField(choices=DEVICES)
    gpu_model = serializers.CharField(
        max_length=200, required=False, allow_blank=True, default="",
        help_text="as the pool shows it; left out: every model of the device that has no price",
    )  # fmt: skip
    per_hour = serializers.DecimalField(
        max_digits=12, decimal_places=4, min_value=0, allow_null=True, coerce_to_string=True,
        help_text="of one slot, for leases from now on; null removes the price",
    )  # fmt: skip


class PoolPricesView(ApiView):
    scopes = {"GET": "pool:read", "PUT": "pool:admin"}

    @endpoint("get_pool_prices", returns=PricesSerializer)
    def get(self, request: Request, pool_name: str) -> object:
        """Get the prices of a pool.

        What an hour of a slot costs, by device and GPU model. Slots without a price cost nothing.
        """
        return _shown(access.pool_for(caller_of(request), pool_name))

    @endpoint("set_pool_price", body=PriceChangeSerializer, returns=PricesSerializer)
    def put(self, request: Request, pool_name: str) -> object:
        """Set a price of a pool.

        For one device, or for one model of it. A lease keeps the price of the moment at which it was granted,
        so a new price never changes what past usage cost.
        """
        pool = access.managed_pool(caller_of(request), pool_name)
        prices.set_price(pool, **body_of(PriceChangeSerializer, request))
        return _shown(pool)


def _shown(pool: Pool) -> dict[str, object]:
    return {"currency": settings.ENVIRONMENT.currency, "prices": list(prices.prices_of(pool.pk))}
