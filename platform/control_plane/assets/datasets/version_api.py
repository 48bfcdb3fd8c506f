"""Whole versions: derived splits, merged versions, leaks between splits, the difference between two."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.assets import selectors
from control_plane.assets.api import CanonicalRowSerializer, VersionSerializer
from control_plane.assets.datasets import derivation
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.query_params import invalid_parameter
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import NONEMPTY


class SplitSerializer(StrictSerializer):
    ratios = serializers.DictField(child=serializers.FloatField(), help_text='{"train": 0.9, "eval": 0.1}')
    seed = serializers.IntegerField(required=False, default=0, min_value=0, max_value=2**63 - 1)
    stratify = serializers.ChoiceField(
        choices=["answer", "split"], required=False, allow_null=True, default=None,
        help_text="divide the rows of each answer, or of each split, by the ratios",
    )  # fmt: skip


class MergeSerializer(StrictSerializer):
    versions = serializers.ListField(
        child=serializers.CharField(max_length=200), min_length=1, max_length=20,
        help_text="ids, name@3 or name@latest, in the order of their rows",
    )  # fmt: skip


class DifferenceSerializer(ResponseSerializer):
    identical = serializers.BooleanField()
    added = serializers.IntegerField(help_text="prompts that only the newer one has")
    removed = serializers.IntegerField()
    changed = serializers.IntegerField(help_text="prompts with another answer, demonstration or split")
    unchanged = serializers.IntegerField()
    added_rows = CanonicalRowSerializer(many=True, help_text="the first of them")
    removed_rows = CanonicalRowSerializer(many=True)
    changed_rows = serializers.ListField(child=serializers.DictField(), help_text='{"from": row, "to": row}')
    splits = serializers.DictField(child=serializers.DictField(child=serializers.IntegerField()))


class LeaksSerializer(ResponseSerializer):
    leaks = serializers.DictField(
        child=serializers.IntegerField(), help_text="'eval, train': prompts in both"
    )


class SplitView(ApiView):
    scopes = {"POST": "datasets:write"}

    @idempotent
    @endpoint(
        "derive_dataset_version",
        body=SplitSerializer,
        returns=VersionSerializer,
        existing="a version has these rows in these splits already",
    )
    def post(self, request: Request, version_id: str) -> object:
        """Split a dataset version.

        Creates a version with new splits by ratio, seed and stratification. Rows with the same prompt stay in
        one split. The same request finds the same version again (200).
        """
        caller = caller_of(request)
        parent = selectors.version_for(caller, version_id)
        fields = body_of(SplitSerializer, request)
        return derivation.derive_version(caller, parent, **fields)


class MergeView(ApiView):
    scopes = {"POST": "datasets:write"}

    @idempotent
    @endpoint(
        "merge_dataset_versions",
        body=MergeSerializer,
        returns=VersionSerializer,
        existing="a version has these rows already",
    )
    def post(self, request: Request, dataset_id: str) -> object:
        """Merge dataset versions.

        Creates a version of this dataset with the rows of all of them. A row without a source gets the name of its
        dataset as source, so that a run can weight it (dataset.weights). The mapping is that of the first.
        """
        caller = caller_of(request)
        dataset = selectors.dataset_for(caller, dataset_id)
        fields = body_of(MergeSerializer, request)
        versions = [
            or_not_found(selectors.find_version(caller, reference), "dataset version", reference)
            for reference in fields["versions"]
        ]
        return derivation.merge_versions(caller, dataset, versions)


class DifferenceView(ApiView):
    scopes = {"GET": "datasets:read"}

    @extend_schema(
        operation_id="diff_dataset_versions",
        parameters=[
            OpenApiParameter("from", NONEMPTY, required=True, description="id, name@3 or name@latest")
        ],
        responses=DifferenceSerializer,
    )
    def get(self, request: Request, version_id: str) -> Response:
        """Compare two dataset versions.

        The rows that were added, removed and changed.
        """
        caller = caller_of(request)
        new = selectors.version_for(caller, version_id)
        reference = request.query_params.get("from", "")
        if not reference:
            raise invalid_parameter("from", "from= is missing: the version to compare with, as name@2")
        old = or_not_found(selectors.find_version(caller, reference), "dataset version", reference)
        return Response(derivation.diff(old, new))


class LeakageView(ApiView):
    scopes = {"GET": "datasets:read"}

    @extend_schema(operation_id="get_dataset_leaks", responses=LeaksSerializer)
    def get(self, request: Request, version_id: str) -> Response:
        """Find leakage between splits.

        Rows of one split that stand in another one, exactly or nearly.
        """
        version = selectors.version_for(caller_of(request), version_id)
        return Response({"leaks": derivation.find_leakage(version)})
