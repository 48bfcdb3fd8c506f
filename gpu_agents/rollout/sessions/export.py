"""Convert recorded turns into the trajectories that a step trains on (pure).

`concatenated`: one trajectory per branch, from its root to its last turn. A turn that several branches share is
trained on once, in the first of them, and masked in the others. `individual`: one trajectory per call, with the
context before it masked. Every trajectory of a session has the session's reward and names its rollout, so that
baselines and filters count each session once.

The rollouts of a group begin with different tokens, because each agent writes its own conversation. The trainer
expects one prompt per group: so the longest common prefix is the group's prompt, and the rest of each prompt is part
of its trajectory, masked in the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpu_agents.rollout.sessions.conversation_tree import ConversationTree, ConversationTurn
from oolong.contracts.rollout import Trajectory, Turn

Export = Literal["concatenated", "individual"]


class NoCommonPrompt(ValueError):
    """The rollouts' conversations do not begin with the same token, so they have no common prompt."""


@dataclass
class Branch:
    """A trajectory under construction, with its prompt. All lists have length T."""

    token_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)  # -1 for environment tokens
    sampled: list[ConversationTurn] = field(default_factory=list)  # the turns that are trained on

    def add_masked(self, token_ids: Sequence[int]) -> None:
        self.token_ids += token_ids
        self.loss_mask += [0] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)
        self.versions += [-1] * len(token_ids)

    def add_sampled(self, turn: ConversationTurn) -> None:
        self.token_ids += turn.sampled.token_ids
        self.loss_mask += [1] * len(turn.sampled.token_ids)
        self.logprobs += turn.sampled.logprobs
        self.versions += turn.sampled.versions
        self.sampled.append(turn)

    def trajectory(self, *, prompt_tokens: int, rollout: int, reward: float, score: float) -> Trajectory:
        """The trajectory without the group's prompt, its first `prompt_tokens`. `rollout`: the session's index."""
        loss_mask = self.loss_mask[prompt_tokens:]
        last = self.sampled[-1].sampled
        return Trajectory(
            token_ids=self.token_ids[prompt_tokens:],
            loss_mask=loss_mask,
            behavior_logprobs=self.logprobs[prompt_tokens:],
            policy_versions=_fill_versions(self.versions[prompt_tokens:]),
            finish_reason=last.finish_reason,
            turns=_turns(loss_mask, self.sampled),
            reward=reward,
            score=score,
            interruptions=sum(turn.sampled.interruptions for turn in self.sampled),
            generate_seconds=sum(turn.sampled.generate_seconds for turn in self.sampled),
            rollout=rollout,
        )


def export_branches(tree: ConversationTree, export: Export) -> list[Branch]:
    if export == "individual":
        return [_branch(turn, trained={turn}) for turn in tree.turns]
    branches: list[Branch] = []
    done: set[ConversationTurn] = set()
    for leaf in tree.leaves:
        branches.append(_branch(leaf, trained=set(leaf.path) - done))
        done.update(leaf.path)
    return branches


def common_prompt(branches: Sequence[Branch]) -> list[int]:
    """Return the longest common prefix that no branch trains on. Raises NoCommonPrompt."""
    limit = min(branch.loss_mask.index(1) for branch in branches)
    first = branches[0].token_ids
    shared = 0
    while shared < limit and all(branch.token_ids[shared] == first[shared] for branch in branches):
        shared += 1
    if shared == 0:
        raise NoCommonPrompt("the conversations of the group's sessions do not begin with the same token")
    return first[:shared]


def _branch(leaf: ConversationTurn, *, trained: set[ConversationTurn]) -> Branch:
    branch = Branch()
    for turn in leaf.path:
        branch.add_masked(turn.context_ids)
        if turn in trained:
            branch.add_sampled(turn)
        else:
            branch.add_masked(turn.sampled.token_ids)
    return branch


def _fill_versions(versions: list[int]) -> list[int]:
    """Give environment tokens the previous token's version, so that they change neither age nor version span."""
    before = next(version for version in versions if version >= 0)
    filled = []
    for version in versions:
        before = version if version >= 0 else before
        filled.append(before)
    return filled


def _turns(loss_mask: list[int], sampled: Sequence[ConversationTurn]) -> list[Turn]:
    """Split the trajectory into turns; adjacent sampled turns stay separate."""
    turns: list[Turn] = []
    position = 0
    for turn in sampled:
        begins = loss_mask.index(1, position)
        if begins > position:
            turns.append(Turn(tokens=begins - position, sampled=False))
        length = len(turn.sampled.token_ids)
        turns.append(Turn(tokens=length, sampled=True, finish_reason=turn.sampled.finish_reason))
        position = begins + length
    if position < len(loss_mask):
        turns.append(Turn(tokens=len(loss_mask) - position, sampled=False))
    return turns
