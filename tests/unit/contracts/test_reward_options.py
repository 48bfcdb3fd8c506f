"""Options of the built-in rewards: the description at submission is the one that the reward service reads."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.assets.functions.rewards import BUILT_IN
from gpu_agents.rewards.registry import REWARDS, SANDBOXED, build_reward
from oolong.contracts.run_spec import REWARD_OPTIONS, option_faults
from oolong.presets import built_in_presets


def test_every_built_in_reward_is_described_submitted_and_built() -> None:
    assert set(REWARD_OPTIONS) == set(BUILT_IN) == {*REWARDS, *SANDBOXED, "composite"}


@pytest.mark.parametrize(
    ("name", "options", "pointers"),
    [
        ("exact_match", {"extrac": "x", "ignore_case": 3}, ["/extrac", "/ignore_case"]),
        ("exact_match", {"extract": "regex"}, ["/pattern"]),
        ("exact_match", {"extract": "regex", "pattern": "("}, ["/pattern"]),
        ("exact_match", {"extract": "whole", "pattern": "x"}, ["/pattern"]),
        ("math", {"extract": "regex"}, ["/extract"]),
        ("format", {}, ["/tags"]),
        ("format", {"tags": ["a"], "pattern": "x"}, ["/tags"]),
        ("format", {"tags": []}, ["/tags"]),
        ("length", {"full_until": 5, "zero_from": 5}, ["/zero_from"]),
        ("code", {"max_tests": 0.5, "memory_mib": True, "timeout_seconds": float("inf")},
         ["/max_tests", "/memory_mib", "/timeout_seconds"]),
        ("composite", {}, ["/parts"]),
        ("composite", {"parts": [{"name": "composite"}, {"weight": 1}, {"name": "math", "options": {"x": 1}}]},
         ["/parts/0/name", "/parts/1/name", "/parts/2/options/x"]),
    ],
)  # fmt: skip
def test_every_fault_has_a_pointer(name: str, options: dict[str, Any], pointers: list[str]) -> None:
    found = option_faults(name, options, prefix="/reward/options")
    assert sorted(fault.pointer for fault in found) == [f"/reward/options{pointer}" for pointer in pointers]
    assert all("nput should" not in fault.message for fault in found)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("exact_match", {"extract": "regex", "pattern": r"Answer: (\\d+)", "ignore_case": True}),
        ("format", {"tags": ["think", "answer"]}),
        ("length", {"full_until": 0, "zero_from": 10.5, "unit": "words"}),
    ],
)
def test_what_is_accepted_at_submission_is_built_on_the_node(name: str, options: dict[str, Any]) -> None:
    assert option_faults(name, options) == []
    assert build_reward(name, options)


def test_options_of_presets_are_right() -> None:
    for preset in built_in_presets():
        reward = preset.spec.get("reward", {})
        assert option_faults(reward.get("name", "exact_match"), reward.get("options", {})) == [], preset.name
