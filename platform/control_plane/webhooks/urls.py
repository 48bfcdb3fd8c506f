from django.urls import path

from control_plane.webhooks import api

urlpatterns = [
    path("webhooks", api.WebhooksView.as_view()),
    path("webhooks/<str:webhook_id>", api.WebhookView.as_view()),
    path("webhooks/<str:webhook_id>/rotate-secret", api.RotateSecretView.as_view()),
    path("webhooks/<str:webhook_id>/test", api.TestWebhookView.as_view()),
    path("webhooks/<str:webhook_id>/deliveries", api.DeliveriesView.as_view()),
    path("webhook-deliveries/<str:delivery_id>", api.DeliveryView.as_view()),
    path("webhook-deliveries/<str:delivery_id>/redeliver", api.RedeliverView.as_view()),
]
