"""What an agent's calls become: turns, branches and trajectories, token by token."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gpu_agents.rollout.controller.group_validation import validate_group
from gpu_agents.rollout.sessions.conversation_tree import (
    ConversationTree,
    ConversationTurn,
    Sampled,
    canonical,
    history_of,
)
from gpu_agents.rollout.sessions.export import NoCommonPrompt, common_prompt, export_branches
from gpu_agents.rollout.sessions.session import Session, session_status
from oolong.contracts.rollout import Group, rollouts_of

USER = {"role": "user", "content": "add"}


def said(*ids: int, version: int = 0) -> Sampled:
    return Sampled(
        token_ids=list(ids),
        logprobs=[-i / 10 for i in ids],
        versions=[version] * len(ids),
        finish_reason="stop",
    )


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(
    capture: ConversationTree,
    messages: list[dict[str, Any]],
    *,
    context: list[int],
    sampled: Sampled,
    reply: str,
) -> ConversationTurn:
    history = history_of(messages, [])
    return capture.add(
        capture.locate(history),
        context_ids=context,
        sampled=sampled,
        history=history,
        reply=canonical(assistant(reply)),
    )


def test_of_a_session_whose_group_was_reported_only_the_summary_is_left() -> None:
    session = Session(session_id="0-ab", rollout_index=0, touched_at=0.0, tree=conversation())
    before = session_status(session)
    assert (before["completions"], before["sampled_tokens"]) == (4, 5)
    session.settle()
    assert session_status(session) == before and not session.tree.turns


def test_a_session_may_have_more_turns_than_python_has_frames() -> None:
    turn = None
    for number in range(3000):
        turn = ConversationTurn(
            number=number, parent=turn, origin="continued", context_ids=[1], sampled=said(2), history=()
        )
    assert turn is not None
    assert len(turn.path) == 3000 and turn.token_ids == [1, 2] * 3000


def conversation() -> ConversationTree:
    """Two turns, a second answer to the first, and a conversation with a rewritten history."""
    capture = ConversationTree()
    call(capture, [USER], context=[1, 2], sampled=said(10, 11), reply="a")
    after = [USER, assistant("a")]
    call(
        capture,
        [*after, {"role": "user", "content": "no"}],
        context=[3],
        sampled=said(12, version=1),
        reply="b",
    )
    call(
        capture,
        [*after, {"role": "user", "content": "why"}],
        context=[4],
        sampled=said(13, version=2),
        reply="c",
    )
    call(
        capture,
        [{"role": "user", "content": "summary"}],
        context=[1, 7],
        sampled=said(14, version=2),
        reply="d",
    )
    return capture


def test_a_conversation_goes_on_from_the_turn_that_it_begins_with() -> None:
    capture = conversation()
    assert [turn.origin for turn in capture.turns] == [
        "started",
        "continued",
        "forked",
        "history_rewritten",
    ]
    assert [turn.parent.number if turn.parent else None for turn in capture.turns] == [None, 0, 0, None]
    assert capture.turns[2].token_ids == [1, 2, 10, 11, 4, 13]
    further = [
        USER,
        assistant("a"),
        {"role": "user", "content": "why"},
        assistant("c"),
        {"role": "user", "content": "go"},
    ]
    place = capture.locate(history_of(further, []))
    assert (place.parent, place.origin, place.new_messages) == (capture.turns[2], "continued", 1)


@pytest.mark.parametrize(
    "changed",
    [
        [USER, assistant("A"), USER],
        [{"role": "system", "content": "s"}, USER, assistant("a"), USER],
        [USER, {"role": "user", "content": "a"}, USER],
    ],
)
def test_whatever_the_policy_did_not_say_is_a_rewritten_history(changed: list[dict[str, Any]]) -> None:
    place = conversation().locate(history_of(changed, []))
    assert (place.parent, place.origin) == (None, "history_rewritten")
    assert place.new_messages == len(changed)


def test_other_tools_are_another_conversation() -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    assert conversation().locate(history_of([USER, assistant("a"), USER], tools)).parent is None


def test_what_clients_add_or_leave_out_does_not_count() -> None:
    arguments = '{"a": 1, "b": 2}'
    called = {"id": "x", "type": "function", "function": {"name": "f", "arguments": arguments}}
    one = {"role": "assistant", "content": None, "refusal": None, "audio": None, "tool_calls": [called]}
    called = {"id": "y", "function": {"name": "f", "arguments": '{"b":2,"a":1}'}}
    other = {"role": "assistant", "content": "", "tool_calls": [called]}
    assert canonical(one) == canonical(other)
    assert canonical(assistant("a")) == canonical({**assistant("a"), "tool_calls": None})
    assert canonical(assistant("a")) != canonical(USER)


def test_concatenated_trains_every_sampled_token_once() -> None:
    branches = export_branches(conversation(), "concatenated")
    assert [branch.token_ids for branch in branches] == [
        [1, 2, 10, 11, 3, 12],
        [1, 2, 10, 11, 4, 13],
        [1, 7, 14],
    ]
    assert [branch.loss_mask for branch in branches] == [[0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1], [0, 0, 1]]
    trained = [id for s in branches for id, mask in zip(s.token_ids, s.loss_mask, strict=True) if mask]
    assert sorted(trained) == [10, 11, 12, 13, 14]


def test_individual_trains_every_call_as_a_trajectory_of_its_own() -> None:
    branches = export_branches(conversation(), "individual")
    assert [branch.loss_mask for branch in branches] == [
        [0, 0, 1, 1], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1], [0, 0, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("export", ["concatenated", "individual"])
def test_a_group_of_sessions_is_one_that_a_step_can_train_on(export: Any) -> None:
    branches = [(member, branch) for member in range(2) for branch in export_branches(conversation(), export)]
    prompt = common_prompt([branch for _, branch in branches])
    assert prompt == [1]
    trajectories = [
        branch.trajectory(prompt_tokens=1, rollout=member, reward=5.0, score=1.0)
        for member, branch in branches
    ]
    group = Group(
        group_id="0-0-0", row=0, prompt_token_ids=prompt, prompt="", answer="", trajectories=trajectories
    )
    validate_group(group, group_size=2, branching=True)
    assert [len(rollout) for rollout in rollouts_of(group)] == [len(branches) // 2] * 2
    with pytest.raises(ValueError, match="trajectories, not 2"):
        validate_group(group, group_size=2)
    for trajectory in trajectories:
        assert sum(turn.tokens for turn in trajectory.turns) == len(trajectory.token_ids)
        assert sum(t.tokens for t in trajectory.turns if t.sampled) == sum(trajectory.loss_mask)
        # The environment's tokens have a neighbour's version: they make nothing older.
        own = {v for v, m in zip(trajectory.policy_versions, trajectory.loss_mask, strict=True) if m}
        assert set(trajectory.policy_versions) == own


def test_a_group_of_sessions_has_every_rollout_with_one_reward_each() -> None:
    (branch, *_) = export_branches(conversation(), "individual")

    def group(*rollouts_and_rewards: tuple[int | None, float]) -> Group:
        trajectory = branch.trajectory(prompt_tokens=1, rollout=0, reward=0.0, score=0.0)
        return Group(
            group_id="0-0-0", row=0, prompt_token_ids=[1], prompt="", answer="",
            trajectories=[
                replace(trajectory, rollout=rollout, reward=reward) for rollout, reward in rollouts_and_rewards
            ],
        )  # fmt: skip

    validate_group(group((0, 1.0), (1, 0.0), (0, 1.0)), group_size=2, branching=True)
    for unusable, said in (
        (group((0, 1.0), (0, 1.0)), r"rollouts \[0\].*every one of 0 to 1"),
        (group((0, 1.0), (1, 0.0), (2, 0.0)), r"rollouts \[0, 1, 2\]"),
        (group((0, 1.0), (1, 0.0), (None, 0.0)), "each must name one"),
        (group((0, 1.0), (1, 0.0), (0, 0.0)), "rollout 0: its trajectories have unequal rewards"),
        (group((None, 1.0), (None, 1.0), (None, 1.0)), "3 trajectories, not 2"),
    ):
        with pytest.raises(ValueError, match=said):
            validate_group(unusable, group_size=2, branching=True)


def test_the_log_probabilities_stay_with_their_tokens() -> None:
    (first, *_) = export_branches(conversation(), "concatenated")
    trajectory = first.trajectory(prompt_tokens=1, rollout=0, reward=0.0, score=0.0)
    assert trajectory.token_ids == [2, 10, 11, 3, 12]
    assert trajectory.behavior_logprobs == [0.0, -1.0, -1.1, 0.0, -1.2]
    assert trajectory.policy_versions == [0, 0, 0, 0, 1]
    assert [(t.tokens, t.sampled) for t in trajectory.turns] == [(1, False), (2, True), (1, False), (1, True)]


def test_members_that_share_no_first_token_have_no_prompt() -> None:
    capture = ConversationTree()
    call(capture, [USER], context=[5], sampled=said(10), reply="a")
    with pytest.raises(NoCommonPrompt):
        common_prompt(
            [*export_branches(capture, "concatenated"), *export_branches(conversation(), "concatenated")]
        )
