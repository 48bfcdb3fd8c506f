from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field, no_body
from control_plane.core.infra import clock
from control_plane.webhooks import selectors, services
from control_plane.webhooks.event_types import TYPE_NAMES

_NAME = (r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", "letters, digits, spaces and . _ -, a letter or digit first")


class WebhookFormSerializer(StrictSerializer):
    name = name_field(*_NAME, max_length=120)
    url = serializers.CharField(
        max_length=2000, help_text="https on the open internet, or in an allowed network"
    )
    events = serializers.ListField(
        child=serializers.CharField(max_length=60), min_length=1, max_length=50,
        help_text="types, or patterns such as run.*; the webhook how-to lists them",
    )  # fmt: skip


class WebhookPatchSerializer(StrictSerializer):
    name = name_field(*_NAME, max_length=120, required=False)
    url = serializers.CharField(max_length=2000, required=False)
    events = serializers.ListField(
        child=serializers.CharField(max_length=60), min_length=1, max_length=50, required=False
    )
    enabled = serializers.BooleanField(required=False)

    not_empty = True


class WebhookSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.CharField())
    enabled = serializers.BooleanField()
    disabled_reason = serializers.CharField()
    failing_since = serializers.DateTimeField(allow_null=True, help_text="since when every try has failed")
    previous_secret_until = serializers.DateTimeField(
        source="previous_until", allow_null=True, help_text="until then two secrets sign"
    )
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class CreatedWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(help_text="whsec_…; shown this once")


class WebhookEventSerializer(ResponseSerializer):
    id = serializers.CharField(help_text="the header webhook-id: the same at every try")
    type = serializers.ChoiceField(choices=TYPE_NAMES)
    at = serializers.DateTimeField()
    data = serializers.DictField()


class DeliveryTrySerializer(ResponseSerializer):
    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    status = serializers.IntegerField(allow_null=True, help_text="null: there was no answer")
    milliseconds = serializers.IntegerField()
    error = serializers.CharField()
    excerpt = serializers.CharField(help_text="the beginning of the answer")


class DeliverySerializer(ResponseSerializer):
    id = serializers.CharField()
    webhook = serializers.CharField(source="webhook_id")
    event = WebhookEventSerializer()
    state = serializers.ChoiceField(choices=["PENDING", "DELIVERED", "FAILED"])
    message = serializers.CharField(help_text="why the last try failed")
    tries = serializers.IntegerField()
    next_at = serializers.DateTimeField(source="due_at", allow_null=True)
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    log = DeliveryTrySerializer(many=True)


class WebhooksView(ApiView):
    scopes = {"GET": "webhooks:admin", "POST": "webhooks:admin"}

    @endpoint("list_webhooks", page=WebhookSerializer)
    def get(self, request: Request) -> object:
        """List webhooks.

        Webhooks of the project with their state.
        """
        return selectors.webhooks(caller_of(request))

    # Without an Idempotency-Key: its answer holds a secret, and would be kept to be shown again.
    @extend_schema(
        operation_id="create_webhook",
        request=WebhookFormSerializer,
        responses={201: CreatedWebhookSerializer},
    )
    @idempotent(secret=True)
    def post(self, request: Request) -> Response:
        """Create a webhook.

        Events are sent to the URL, signed with a secret that is shown once.
        """
        fields = body_of(WebhookFormSerializer, request)
        webhook, secret = services.create_webhook(caller_of(request), **fields, now=clock.now())
        return Response({**WebhookSerializer.render(webhook), "secret": secret}, status=201)


class WebhookView(ApiView):
    scopes = {"GET": "webhooks:admin", "PATCH": "webhooks:admin", "DELETE": "webhooks:admin"}

    @endpoint("get_webhook", returns=WebhookSerializer)
    def get(self, request: Request, webhook_id: str) -> object:
        """Get a webhook.

        Its URL, events and the result of the newest delivery.
        """
        return selectors.webhook_for(caller_of(request), webhook_id)

    @endpoint("update_webhook", body=WebhookPatchSerializer, returns=WebhookSerializer)
    def patch(self, request: Request, webhook_id: str) -> object:
        """Change a webhook.

        Only what is given changes: name, URL, events, or whether it is enabled.
        """
        webhook = selectors.webhook_for(caller_of(request), webhook_id)
        fields = body_of(WebhookPatchSerializer, request)
        return services.update_webhook(webhook.pk, fields, now=clock.now())

    @endpoint("delete_webhook")
    def delete(self, request: Request, webhook_id: str) -> None:
        """Delete a webhook.

        Its deliveries are deleted with it.
        """
        services.delete_webhook(selectors.webhook_for(caller_of(request), webhook_id).pk, now=clock.now())


class RotateSecretView(ApiView):
    scopes = {"POST": "webhooks:admin"}

    @extend_schema(
        operation_id="rotate_webhook_secret", request=None, responses={200: CreatedWebhookSerializer}
    )
    @idempotent(secret=True)
    @no_body
    def post(self, request: Request, webhook_id: str) -> Response:
        """Rotate a webhook's secret.

        The new secret is shown once. For a day both sign, so that the receiver can change over at any moment.
        """
        webhook = selectors.webhook_for(caller_of(request), webhook_id)
        webhook, secret = services.rotate_secret(webhook.pk, now=clock.now())
        return Response({**WebhookSerializer.render(webhook), "secret": secret})


class TestWebhookView(ApiView):
    scopes = {"POST": "webhooks:admin"}

    @idempotent
    @endpoint("send_test_webhook", returns=DeliverySerializer, status=202)
    def post(self, request: Request, webhook_id: str) -> object:
        """Send a test event.

        Sends a `ping` event to the URL.
        """
        caller = caller_of(request)
        return services.send_test(selectors.webhook_for(caller, webhook_id), by=caller, now=clock.now())


class DeliveriesView(ApiView):
    scopes = {"GET": "webhooks:admin"}

    @endpoint("list_webhook_deliveries", page=DeliverySerializer)
    def get(self, request: Request, webhook_id: str) -> object:
        """List deliveries.

        Deliveries of the webhook, newest first.
        """
        return selectors.deliveries(selectors.webhook_for(caller_of(request), webhook_id))


class DeliveryView(ApiView):
    scopes = {"GET": "webhooks:admin"}

    @endpoint("get_webhook_delivery", returns=DeliverySerializer)
    def get(self, request: Request, delivery_id: str) -> object:
        """Get a webhook delivery.

        What was sent, each attempt and its answer.
        """
        return selectors.delivery_for(caller_of(request), delivery_id)


class RedeliverView(ApiView):
    scopes = {"POST": "webhooks:admin"}

    @idempotent
    @endpoint("redeliver_webhook", returns=DeliverySerializer, status=202)
    def post(self, request: Request, delivery_id: str) -> object:
        """Send a delivery again.

        The same event, as a new attempt.
        """
        delivery = selectors.delivery_for(caller_of(request), delivery_id)
        again = services.redeliver(delivery, now=clock.now())
        return selectors.delivery_for(caller_of(request), again.pk)
