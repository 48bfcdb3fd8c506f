"""Options of the built-in rewards: the description at submission is the one that the reward service reads."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.assets.functions.rewards import BUILT_IN
from gpu_agents.rewards.registry import REMOTE, REWARDS, SANDBOXED, build_reward
from oolong.contracts.run_spec import REWARD_OPTIONS, option_faults
from oolong.contracts.run_spec.remote_rewards import remote_rewards
from oolong.presets import built_in_presets

JUDGE = {"url": "https://a.test", "model": "m", "template": "Judge {response}"}


def test_every_built_in_reward_is_described_submitted_and_built() -> None:
    assert set(REWARD_OPTIONS) == set(BUILT_IN) == {*REWARDS, *SANDBOXED, *REMOTE, "composite"}


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
        ("http", {}, ["/url"]),
        ("http", {"url": "ftp://a.test/x", "secret": "lower", "attempts": 0, "concurrency": 65, "batch_size": 0},
         ["/attempts", "/batch_size", "/concurrency", "/secret", "/url"]),
        *(("http", {"url": url}, ["/url"]) for url in (
            "https://user:word@a.test/", "https://a.test\\@b.test/", "https://a.test/ x", "//a.test", "https:///x",
            "https://a.test:port/", "https://a.test/#part", "https://höst.test/")),
        ("judge", {"url": "https://a.test", "model": "m", "template": "no placeholder"}, ["/template"]),
        ("judge", {"url": "https://a.test", "model": "m", "template": "{respons}"}, ["/template"]),
        ("judge", {"url": "https://a.test", "model": "m", "template": "{response!r}"}, ["/template"]),
        ("judge", {"url": "https://a.test", "model": "m", "template": "{response} {"}, ["/template"]),
        ("judge", {**JUDGE, "parse": "regex"}, ["/pattern"]),
        ("judge", {**JUDGE, "parse": "regex", "pattern": "("}, ["/pattern"]),
        ("judge", {**JUDGE, "parse": "regex", "pattern": "(a)(b)"}, ["/pattern"]),
        ("judge", {**JUDGE, "pattern": "(a)"}, ["/pattern"]),
        ("judge", {**JUDGE, "low": 1, "high": 1}, ["/high"]),
        ("composite", {"parts": [{"name": "http", "options": {"url": "x"}}]}, ["/parts/0/options/url"]),
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


def test_an_unknown_name_in_a_template_is_named_with_the_nearest_one() -> None:
    (fault,) = option_faults("judge", {**JUDGE, "template": '{respons} {{"score": 1}}'})
    assert fault.code == "unknown_name"
    assert "{respons}; did you mean 'response'?" in fault.message
    assert "{prompt}, {answer}, {response}" in fault.message and "{{ and }}" in fault.message


def test_every_service_that_a_spec_asks_is_found_with_its_pointer() -> None:
    judge = {"name": "judge", "options": {**JUDGE, "secret": "KEY"}}
    spec = {
        "kind": "rl",
        "reward": {"name": "composite", "options": {"parts": [{"name": "math"}, judge]}},
        "evaluation": {"reward": {"name": "http", "options": {"url": "http://b.test/"}}},
    }
    assert [(one.pointer, one.options.url, one.options.secret) for one in remote_rewards(spec)] == [
        ("/reward/options/parts/1/options", "https://a.test", "KEY"),
        ("/evaluation/reward/options", "http://b.test/", None),
    ]
    assert remote_rewards({**spec, "kind": "sft"}) == []
    assert remote_rewards({"kind": "rl", "reward": {"function": "mine@1", "options": JUDGE}}) == []


def test_options_of_presets_are_right() -> None:
    for preset in built_in_presets():
        reward = preset.spec.get("reward", {})
        assert option_faults(reward.get("name", "exact_match"), reward.get("options", {})) == [], preset.name
