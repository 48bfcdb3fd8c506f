from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from rest_framework import serializers

from control_plane.core.api.rendering import ResponseSerializer


class OwnerSerializer(ResponseSerializer):
    id = serializers.CharField()


class ThingSerializer(ResponseSerializer):
    name = serializers.CharField(source="title")
    owner = OwnerSerializer(allow_null=True)
    parts = OwnerSerializer(many=True)
    counts = serializers.DictField(child=serializers.IntegerField())
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ListedSerializer(ThingSerializer):
    size = serializers.IntegerField()
    shout = serializers.CharField()

    @classmethod
    def prefetch(cls, rows: Sequence[Any]) -> None:
        for row in rows:
            row.size = len(rows)

    def resolve_shout(self, row: Any) -> str:
        return str(row.title).upper()


def thing(**fields: Any) -> Any:
    whole = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    values = {"title": "a", "owner": None, "parts": [], "counts": {}, "created_at": whole, "ended_at": None}
    return SimpleNamespace(**{**values, **fields})


def test_times_have_milliseconds_even_at_a_whole_second() -> None:
    ended = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    rendered = ThingSerializer.render(thing(ended_at=ended))
    assert (rendered["created_at"], rendered["ended_at"]) == (
        "2026-01-02T03:04:05.000Z",
        "2026-01-02T03:04:05.678Z",
    )
    assert ThingSerializer.render(thing())["ended_at"] is None


class MisspelledSerializer(ResponseSerializer):
    ended_at = serializers.DateTimeField(source="endet_at", allow_null=True)


class ThroughNullSerializer(ResponseSerializer):
    owner = serializers.CharField(source="owner.username", allow_null=True)


def test_a_source_that_no_row_has_is_a_fault_even_if_the_field_may_be_null() -> None:
    with pytest.raises(AttributeError, match="endet_at"):
        MisspelledSerializer.render(thing())
    with pytest.raises(KeyError, match="endet_at"):
        MisspelledSerializer.render({"ended_at": None})
    with pytest.raises(AttributeError, match="username"):
        ThroughNullSerializer.render(thing(owner=SimpleNamespace(id="usr_1")))


def test_a_source_through_null_is_null_only_where_the_field_may_be() -> None:
    assert ThroughNullSerializer.render(thing(owner=None)) == {"owner": None}


def test_nested_resources_render_from_rows_and_mappings() -> None:
    rendered = ThingSerializer.render(
        thing(owner=SimpleNamespace(id="usr_1"), parts=[{"id": "p1"}, {"id": "p2"}], counts={"train": 3})
    )
    assert rendered["name"] == "a"
    assert rendered["owner"] == {"id": "usr_1"}
    assert rendered["parts"] == [{"id": "p1"}, {"id": "p2"}]
    assert rendered["counts"] == {"train": 3}


def test_rows_of_a_page_are_prefetched_together_and_methods_compute_fields() -> None:
    first, second = ListedSerializer.render_all(iter([thing(), thing(title="b")]))
    assert (first["size"], first["shout"], second["shout"]) == (2, "A", "B")
    assert ListedSerializer.render(thing())["size"] == 1
