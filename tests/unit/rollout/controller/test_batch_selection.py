"""SEMANTICS section 3: which groups a batch takes."""

from __future__ import annotations

from gpu_agents.rollout.controller.batch_selection import (
    BatchSelection,
    Candidate,
    StragglerPolicy,
    missed_deadlines,
    select_batch,
)


def choose(
    policy: StragglerPolicy,
    finished: list[tuple[int, int]],
    *,
    version: int,
    max_staleness: int,
    groups: int = 1,
    running: list[int] | None = None,
) -> BatchSelection:
    """`finished` as (claim order, oldest version)."""
    return select_batch(
        policy,
        version=version,
        groups=groups,
        finished=[
            Candidate(group_id=str(order), order=order, deadline=oldest + max_staleness)
            for order, oldest in finished
        ],
        unfinished_deadlines=[oldest + max_staleness for oldest in running or []],
    )


def test_keep_takes_the_oldest_claims_whatever_their_age() -> None:
    choice = choose("keep", [(5, 3), (2, 0), (9, 9)], version=9, max_staleness=1, groups=2)
    assert choice == BatchSelection(batch=["2", "5"], drop=[])


def test_drop_leaves_out_and_names_what_is_over_the_bound() -> None:
    choice = choose("drop", [(1, 0), (2, 4), (3, 5)], version=5, max_staleness=1, groups=2)
    assert choice == BatchSelection(batch=["2", "3"], drop=["1"])


def test_drop_drops_even_when_no_batch_results() -> None:
    assert choose("drop", [(1, 0), (2, 5)], version=5, max_staleness=1, groups=2) == BatchSelection(
        batch=[], drop=["1"]
    )


def test_wait_waits_for_a_running_group_that_the_next_version_would_make_too_old() -> None:
    choice = choose("wait", [(2, 1)], version=1, max_staleness=1, running=[0])
    assert choice == BatchSelection(batch=[], drop=[], straggler=True)


def test_wait_does_not_wait_for_a_running_group_that_has_a_step_left() -> None:
    assert choose("wait", [(2, 1)], version=1, max_staleness=1, running=[1]).batch == ["2"]


def test_wait_counts_later_steps_too() -> None:
    """Three running groups are due within the next two steps of one group each: one must come first."""
    assert choose("wait", [(9, 5)], version=5, max_staleness=2, running=[5, 5, 5]).straggler
    assert choose("wait", [(9, 5)], version=5, max_staleness=2, running=[5, 5]).batch == ["9"]


def test_wait_prefers_the_nearest_deadline_to_the_oldest_claim() -> None:
    """Group 0 was claimed first, but is known to be a version younger (it was released before it had a token). By
    claim order group 0 would be the choice at every take, and group 1, at its deadline, would forbid every one."""
    choice = choose("wait", [(0, 1), (1, 0)], version=2, max_staleness=2)
    assert choice.batch == ["1"]


def test_too_few_groups_are_no_straggler() -> None:
    assert choose("wait", [(0, 0)], version=0, max_staleness=0, groups=2, running=[0]) == BatchSelection(
        batch=[], drop=[]
    )


def test_a_group_keeps_the_bound_it_was_admitted_under_beside_groups_of_a_lower_one() -> None:
    """Both have tokens of version 0; the first was admitted under 6, the second under 1."""
    finished = [
        Candidate(group_id="under-6", order=0, deadline=6),
        Candidate(group_id="under-1", order=1, deadline=1),
    ]
    choice = select_batch("wait", version=1, groups=1, finished=finished, unfinished_deadlines=[])
    assert choice == BatchSelection(batch=["under-1"], drop=[])
    choice = select_batch("drop", version=2, groups=1, finished=finished, unfinished_deadlines=[])
    assert choice == BatchSelection(batch=["under-6"], drop=["under-1"])


def test_only_the_groups_that_no_order_can_train_in_time_have_missed_their_deadlines() -> None:
    deadlines = [5, 5, 5, 6, 6, 4]  # at version 5, two groups a step: one is late, four places until 6
    finished = [Candidate(group_id=str(i), order=i, deadline=d) for i, d in enumerate(deadlines)]
    assert missed_deadlines(finished, version=5, groups=2) == ["5", "2"]
    rest = [candidate for candidate in finished if candidate.group_id not in {"5", "2"}]
    assert missed_deadlines(rest, version=5, groups=2) == []
    assert not select_batch("wait", version=5, groups=2, finished=rest, unfinished_deadlines=[]).straggler
