"""Endpoints for reward tests."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.query_params import choice
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import RUN_STATUSES
from control_plane.core.api.schema_run_spec import RewardSectionField, RewardTestSectionField
from control_plane.core.infra import clock
from control_plane.experiments import reward_tests
from control_plane.experiments.models import RewardTest
from control_plane.runs.reward_test_policy import is_complete
from control_plane.runs.serializers import DatasetRefSerializer

RESULTS = ["green", "amber", "red"]
MAX_STORED = 2000


class StoredSampleSerializer(StrictSerializer):
    row = serializers.IntegerField(
        required=False, min_value=0, help_text="use the prompt and answer of this row"
    )
    group = serializers.IntegerField(
        required=False, min_value=0, help_text="without a row: the same number for completions of one prompt"
    )
    prompt = serializers.CharField(required=False, trim_whitespace=False, allow_blank=True)
    answer = serializers.CharField(required=False, trim_whitespace=False, allow_blank=True)
    completion = serializers.CharField(trim_whitespace=False, allow_blank=True)
    finish_reason = serializers.ChoiceField(choices=["stop", "length"], required=False)
    special_tokens = serializers.BooleanField(
        required=False,
        help_text="the completion contains the model's special tokens, like stored trajectories",
    )

    any_of = (("row",), ("prompt", "answer"))


class RewardTestRequestSerializer(StrictSerializer):
    dataset = serializers.CharField(max_length=300, help_text="dataset version: id, name@3 or name@latest")
    split = serializers.CharField(max_length=120, required=False, default="train")
    reward = RewardSectionField(help_text="as in a RunSpec: name or function, and options")
    model = serializers.CharField(
        max_length=300, required=False,
        help_text="base model: renders the prompts and generates the samples",
    )  # fmt: skip
    checkpoint = serializers.CharField(
        max_length=300, required=False,
        help_text="instead of a base model: ID, alias, run_…@20 or name@latest. Samples of an untrained model all "
        "get the "
        "same reward",
    )  # fmt: skip
    reward_test = RewardTestSectionField(
        required=False, default=dict,
        help_text="rows, samples, temperature, max_new_tokens, probes, success_score, max_error_rate",
    )  # fmt: skip
    stored = serializers.ListField(
        child=StoredSampleSerializer(), required=False, default=list, max_length=MAX_STORED,
        help_text="more completions to score",
    )  # fmt: skip

    one_of = ("model", "checkpoint")


class RewardTestSerializer(ResponseSerializer):
    id = serializers.CharField()
    run = serializers.CharField(source="run_id", help_text="run of kind reward_test")
    status = serializers.ChoiceField(source="run.status", choices=RUN_STATUSES)
    reason = serializers.CharField(source="run.reason")
    reason_message = serializers.CharField(source="run.reason_message")
    pending_reason = serializers.CharField(source="run.pending_reason")
    reward = serializers.CharField()
    reward_key = serializers.CharField(help_text="SHA-256 of the source or name, and the options")
    dataset = DatasetRefSerializer(source="dataset_version")
    result = serializers.ChoiceField(choices=["", *RESULTS], help_text="empty until the test ends")
    complete = serializers.BooleanField(
        help_text="all probes, on the default rows and bounds: required where a project accepts only tested rewards"
    )
    report = serializers.DictField(allow_null=True)
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(source="run.ended_at", allow_null=True)

    def resolve_complete(self, test: RewardTest) -> bool:
        return is_complete(test)


class RewardTestsView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @endpoint(
        "list_reward_tests",
        page=RewardTestSerializer,
        parameters=[
            OpenApiParameter("reward", str, description="only tests of this reward: name@3, exact_match"),
            OpenApiParameter("result", str, enum=RESULTS),
        ],
    )
    def get(self, request: Request) -> object:
        """List reward tests.

        Tests of reward functions, newest first.
        """
        found = reward_tests.tests(caller_of(request))
        if reward := request.query_params.get("reward"):
            found = found.filter(reward=reward)
        if result := choice(request, "result", RESULTS):
            found = found.filter(result=result)
        return found

    @idempotent
    @endpoint(
        "create_reward_test", body=RewardTestRequestSerializer, returns=RewardTestSerializer, status=201
    )
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Test a reward function.

        Scores sampled and adversarial completions on a slot of the pool, and reports errors, time and whether
        the reward can be gamed.
        """
        caller = caller_of(request)
        if "stored" in fields["reward_test"]:
            raise serializers.ValidationError({"reward_test": {"stored": "send the completions as `stored`"}})
        return reward_tests.create_test(caller, now=clock.now(), **fields)


class RewardTestView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("get_reward_test", returns=RewardTestSerializer)
    def get(self, request: Request, reward_test_id: str) -> object:
        """Get a reward test.

        Its status, scores and findings.
        """
        return reward_tests.test_for(caller_of(request), reward_test_id)
