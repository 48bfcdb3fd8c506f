"""SEMANTICS section 1: the admission gate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_agents.rollout.controller.gate import GateConfig, admit

rules_of_any_run = st.builds(
    GateConfig,
    groups_per_step=st.integers(1, 64),
    max_staleness=st.integers(0, 8),
    max_concurrent_groups=st.just(10**6),
    total_train_steps=st.just(10**6),
)


@given(rules=rules_of_any_run, version=st.integers(0, 1000), held=st.integers(0, 5000))
def test_free_places_are_exactly_those_of_equation_3(rules: GateConfig, version: int, held: int) -> None:
    free = admit(rules, version=version, held=held, running=0).groups
    batch, bound = rules.groups_per_step, version + rules.max_staleness
    if free:
        assert (held + free - 1) // batch <= bound
    assert (held + free) // batch > bound


def test_at_eta_0_one_batch_is_admitted_per_version() -> None:
    rules = GateConfig(groups_per_step=4, max_staleness=0, max_concurrent_groups=99, total_train_steps=99)
    assert admit(rules, version=0, held=0, running=0).groups == 4
    assert admit(rules, version=0, held=4, running=4).refusal == "staleness"
    assert admit(rules, version=1, held=4, running=0).groups == 4


def test_concurrency_binds_before_staleness() -> None:
    rules = GateConfig(groups_per_step=4, max_staleness=2, max_concurrent_groups=5, total_train_steps=99)
    assert admit(rules, version=0, held=3, running=3).groups == 2
    assert admit(rules, version=0, held=5, running=5).refusal == "concurrency"


def test_no_group_is_started_that_no_step_can_use() -> None:
    rules = GateConfig(groups_per_step=4, max_staleness=4, max_concurrent_groups=99, total_train_steps=3)
    assert admit(rules, version=2, held=10, running=0).groups == 2
    assert admit(rules, version=2, held=12, running=0).refusal == "run_ending"


def test_a_drawn_group_that_is_not_finished_may_still_fail_and_make_room() -> None:
    rules = GateConfig(groups_per_step=4, max_staleness=4, max_concurrent_groups=99, total_train_steps=3)
    assert admit(rules, version=2, held=12, running=1).refusal == "last_groups"
    assert admit(rules, version=2, held=12, running=0, waiting=1).refusal == "last_groups"
    assert admit(rules, version=2, held=11, running=0).groups == 1


def test_a_negative_room_is_no_room() -> None:
    rules = GateConfig(groups_per_step=1, max_staleness=0, max_concurrent_groups=1, total_train_steps=9)
    assert admit(rules, version=0, held=5, running=3).groups == 0
