from __future__ import annotations

from rest_framework import serializers

from control_plane.core.api.rendering import ResponseSerializer
from control_plane.runs.serializers import SpecSerializer
from control_plane.telemetry.planning.simulate import MAX_DEVICES, RunSimulation


class SimulateSerializer(SpecSerializer):
    devices = serializers.IntegerField(
        required=False, min_value=2, max_value=MAX_DEVICES,
        help_text="slots to divide between engines and trainer; as many as the spec asks for when left out",
    )  # fmt: skip
    gpu = serializers.CharField(
        required=False, max_length=100,
        help_text="a GPU whose data sheet gives the service times, such as H100; left out: what runs of this model "
        "measured, else the GPU of the pool",
    )  # fmt: skip
    mean_tokens = serializers.IntegerField(
        required=False, min_value=1, max_value=10_000_000,
        help_text="mean completion length; left out: as measured, else half of rollout.max_new_tokens",
    )  # fmt: skip
    spread = serializers.FloatField(
        required=False, min_value=0.01, max_value=3.0,
        help_text="standard deviation of the logarithm of the lengths; left out: as measured, else 0.75",
    )  # fmt: skip


class ServiceTimesSerializer(ResponseSerializer):
    """Seconds."""

    decode_step = serializers.FloatField(help_text="of a decode step, whatever the batch")
    decode_sequence = serializers.FloatField(help_text="more for each sequence of the batch")
    decode_context = serializers.FloatField(help_text="more for each token in the KV cache")
    prefill_token = serializers.FloatField()
    train_token = serializers.FloatField(help_text="of one trainer rank: proximal and training passes")
    train_step = serializers.FloatField(help_text="of a train step, whatever its size")
    publish = serializers.FloatField(help_text="the trainer waits while weights are published")
    load = serializers.FloatField(help_text="an engine pauses while it loads them")


class CompletionLengthsSerializer(ResponseSerializer):
    mean = serializers.FloatField(help_text="tokens")
    spread = serializers.FloatField(help_text="standard deviation of their logarithm")
    limit = serializers.IntegerField()
    prompt = serializers.IntegerField()


class SimulationSourceSerializer(ResponseSerializer):
    kind = serializers.ChoiceField(choices=["measured", "data_sheet"])
    gpu = serializers.CharField(allow_null=True, help_text="of the data sheet")
    from_runs = serializers.IntegerField(help_text="earlier runs that were measured")
    lengths = serializers.ChoiceField(choices=["given", "measured", "assumed"])


class SimulatedLayoutSerializer(ResponseSerializer):
    change = serializers.CharField(help_text="the assumption that differs; empty for a layout")
    engines = serializers.IntegerField(source="layout.engines")
    trainer_ranks = serializers.IntegerField(source="layout.trainer_devices")
    max_staleness = serializers.IntegerField(source="layout.max_staleness")
    groups_per_step = serializers.IntegerField(source="layout.groups_per_step")
    step_seconds = serializers.FloatField(source="performance.step_seconds")
    trained_tokens_per_second = serializers.FloatField(source="performance.trained_tokens_per_second")
    trainer_idle_frac = serializers.FloatField(source="performance.trainer_idle_frac")
    rollout_idle_frac = serializers.FloatField(source="performance.rollout_idle_frac")
    publish_frac = serializers.FloatField(source="performance.publish_frac")
    paused_frac = serializers.FloatField(
        source="performance.paused_frac", help_text="engines load weights and prefill what that interrupted"
    )
    staleness_mean = serializers.FloatField(source="performance.staleness_mean")
    staleness_p95 = serializers.FloatField(source="performance.staleness_p95")
    staleness_max = serializers.IntegerField(source="performance.staleness_max")


class SimulationSerializer(ResponseSerializer):
    devices = serializers.IntegerField()
    source = SimulationSourceSerializer()
    times = ServiceTimesSerializer()
    lengths = CompletionLengthsSerializer()
    given = SimulatedLayoutSerializer(
        source="plan.given", allow_null=True, help_text="the layout of the spec; null where it cannot train"
    )
    best = SimulatedLayoutSerializer(source="plan.best", help_text="the fastest split of the devices")
    splits = SimulatedLayoutSerializer(
        source="plan.splits", many=True, help_text="by engines, around the best"
    )
    staleness = SimulatedLayoutSerializer(
        source="plan.staleness", many=True, help_text="the best split by max staleness"
    )
    batches = SimulatedLayoutSerializer(
        source="plan.batches", many=True, help_text="the best split by batch size"
    )
    sensitivity = SimulatedLayoutSerializer(
        source="plan.sensitivity", many=True, help_text="the best split if an assumption were wrong"
    )
    sufficient_staleness = serializers.IntegerField(
        source="plan.sufficient_staleness",
        help_text="the smallest max staleness that is as fast as any tried",
    )
    run_seconds = serializers.FloatField(help_text="of all train steps on the best split")
    gpu_hours = serializers.FloatField(help_text="devices times that")
    advice = serializers.ListField(child=serializers.CharField())

    def resolve_run_seconds(self, found: RunSimulation) -> float:
        return found.total_train_steps * found.plan.best.performance.step_seconds

    def resolve_gpu_hours(self, found: RunSimulation) -> float:
        return found.devices * self.resolve_run_seconds(found) / 3600
