"""A run's stored spec as a node gets it: an older agent refuses a field that it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control_plane.fleet.models import Node
from oolong.contracts.agent import FIELDS_OF_6

# Fields that came with FIELDS_OF_6, with the value that means what agents did before.
ADDED: dict[tuple[str, ...], object] = {
    ("rollout", "repeatable_sampling"): False,
    ("algorithm", "importance_weight", "lower_threshold"): None,
    ("algorithm", "advantage", "std_of"): "population",
    ("algorithm", "kl", "importance_correction"): False,
}


def spec_for_node(spec: Mapping[str, Any], node: Node) -> dict[str, Any]:
    """Without unused sections and without the placement, which is decided here; for an older agent also without the
    fields of FIELDS_OF_6, which it would refuse, and with the dtype that a newer one derives from its device."""
    told = {name: value for name, value in spec.items() if value not in (None, []) and name != "placement"}
    if node.protocol >= FIELDS_OF_6:
        return told
    for path in ADDED:
        told = _without(told, path)
    if "trainer" in told and told["trainer"].get("dtype") is None:
        on_gpu = node.slots.filter(device="cuda").exists()
        told["trainer"] = {**told["trainer"], "dtype": "bfloat16" if on_gpu else "float32"}
    return told


def uses_added_fields(spec: Mapping[str, Any]) -> bool:
    """Whether an agent before FIELDS_OF_6 would train something else than what the spec says."""
    return any(_value(spec, path, default) != default for path, default in ADDED.items())


def _value(document: Mapping[str, Any], path: tuple[str, ...], default: object) -> object:
    for name in path[:-1]:
        document = document.get(name) or {}
    return document.get(path[-1], default)


def _without(document: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {name: value for name, value in document.items() if name != first}
    if not isinstance(document.get(first), dict):
        return dict(document)
    return {**document, first: _without(document[first], tuple(rest))}
