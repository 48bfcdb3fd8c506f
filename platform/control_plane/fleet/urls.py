from django.urls import path

from control_plane.fleet import api

urlpatterns = [
    path("pool/nodes/<str:node_id>/cordon", api.CordonView.as_view()),
    path("pool/nodes/<str:node_id>/uncordon", api.UncordonView.as_view()),
    path("pool/nodes/<str:node_id>/drain", api.DrainView.as_view()),
    path("pool/quota", api.QuotaView.as_view()),
    path("pool/enrolment-tokens", api.EnrolmentTokensView.as_view()),
]
