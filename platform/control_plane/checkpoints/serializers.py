from __future__ import annotations

from rest_framework import serializers

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.schema import CHECKPOINT_CONTENTS, CHECKPOINT_KINDS, MODEL_KINDS


class CheckpointBaseSerializer(ResponseSerializer):
    kind = serializers.ChoiceField(choices=MODEL_KINDS)
    id = serializers.CharField()
    name = serializers.CharField()
    sha256 = serializers.CharField(help_text="of its manifest")


class CheckpointSerializer(ResponseSerializer):
    id = serializers.CharField()
    run = NamedSerializer()
    attempt_number = serializers.IntegerField()
    step = serializers.IntegerField(help_text="policy version")
    kind = serializers.ChoiceField(
        choices=CHECKPOINT_KINDS,
        help_text="training: its run continues from it, others begin with its weights; weights: runs only begin "
        "with it",
    )
    content = serializers.ChoiceField(
        choices=CHECKPOINT_CONTENTS,
        help_text="model: all weights; adapter: a LoRA adapter for the weights of `base`",
    )
    base = CheckpointBaseSerializer(allow_null=True, help_text="of an adapter: what it was trained on")
    sha256 = serializers.CharField(source="manifest_sha256", help_text="of its manifest")
    tar_sha256 = serializers.CharField(help_text="of the download; empty while LOCAL")
    bytes = serializers.IntegerField()
    state = serializers.ChoiceField(choices=["LOCAL", "STORED", "DELETED"])
    final = serializers.BooleanField()
    metrics = serializers.DictField(child=serializers.FloatField(allow_null=True))
    parent = serializers.CharField(source="parent_id", allow_null=True)
    aliases = serializers.ListField(source="alias_names", child=serializers.CharField())
    pinned = serializers.BooleanField(help_text="never freed by a policy")
    created_at = serializers.DateTimeField()
    stored_at = serializers.DateTimeField(allow_null=True)
    deleted_at = serializers.DateTimeField(allow_null=True)


class AliasSerializer(ResponseSerializer):
    name = serializers.CharField()
    checkpoint = CheckpointSerializer()
    protected = serializers.BooleanField()
    evidence = serializers.DictField(
        allow_null=True,
        help_text="how it passed the alias's gate when it was moved here; null without a gate",
    )
    updated_by = serializers.CharField(source="updated_by.username")
    updated_at = serializers.DateTimeField()
