"""Advantages and returns of one rank's tokens, from hand-computed examples.

Two sequences in one microbatch: two tokens of group 0, rollout 1, with reward 1; one token of group 1, rollout 0, with
reward 0. The other rollouts of their groups are on another rank.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from oolong.contracts.rollout import Group, Trajectory
from oolong.contracts.run_spec import AlgorithmSection
from tests.unit.trainers.rl.two_rollouts import TENSORS
from trainers.rl.advantage_estimation import (
    Advantages,
    ForwardOutputs,
    estimate_gae_advantages,
    estimate_outcome_advantages,
)
from trainers.rl.batch_plan import plan_batch
from trainers.rl.microbatch_tensors import build_microbatch_tensors

REWARDS = [[9.0, 1.0], [0.0, 9.0]]


PROXIMAL = torch.tensor([-1.0, -1.0, -2.0])


REFERENCE = torch.tensor([-1.5, -1.0, -1.0])  # d = 0.5, 0, -1


def credit(
    passes: ForwardOutputs, *, kl: dict[str, Any] | None = None, critic: bool = False, **advantage: Any
) -> Advantages:
    section = {"estimator": "gae", "mean": "none", "std": "none", **advantage}
    algorithm = AlgorithmSection.model_validate(
        {"advantage": section, "kl": kl, "critic": {} if critic else None}
    )
    [found] = estimate_gae_advantages([TENSORS], [passes], REWARDS, algorithm, list)
    return found


@pytest.mark.parametrize(
    ("estimator", "returns"),
    [
        ("k1", [0.75, 1.0, 0.5]),
        ("k2", [0.9375, 1.0, -0.25]),
    ],  # beta 0.5: less (0.25, 0, -0.5), (0.0625, 0, 0.25)
)
def test_kl_in_reward_is_subtracted_per_token_and_reward_is_at_the_last_token(
    estimator: str, returns: list[float]
) -> None:
    kl = {"coefficient": 0.5, "estimator": estimator, "apply_to": "reward"}
    found = credit(ForwardOutputs(proximal=PROXIMAL, reference=REFERENCE), kl=kl)
    assert found.returns is not None
    assert found.returns.tolist() == found.advantages.tolist() == pytest.approx(returns)


def test_kl_in_loss_does_not_change_rewards() -> None:
    found = credit(
        ForwardOutputs(proximal=PROXIMAL, reference=REFERENCE), kl={"coefficient": 0.5, "apply_to": "loss"}
    )
    assert found.advantages.tolist() == [1.0, 1.0, 0.0]


def test_gae_uses_values_gamma_and_lambda_and_does_not_normalize_returns() -> None:
    """gamma = lambda = 1/2: deltas 0.5 * 0.25 - 0.5, 1 - 0.25 and 0 - 0.1; the first carries 1/4 of the second."""
    given = ForwardOutputs(proximal=PROXIMAL, values=torch.tensor([0.5, 0.25, 0.1]))
    found = credit(given, critic=True, gamma=0.5, gae_lambda=0.5, mean="group")
    assert found.returns is not None
    assert found.returns.tolist() == pytest.approx([0.5 - 0.1875, 1.0, 0.0])
    middle = (0.75 - 0.1875) / 2
    assert found.advantages.tolist() == pytest.approx([-0.1875 - middle, 0.75 - middle, 0.0])


def test_outcome_advantages_are_per_trajectory() -> None:
    plain = AlgorithmSection.model_validate({"advantage": {"mean": "none", "std": "none"}})
    [found] = estimate_outcome_advantages([TENSORS], REWARDS, plain)
    assert found.advantages.tolist() == [1.0, 1.0, 0.0] and found.returns is None
    centered = AlgorithmSection.model_validate({"advantage": {"mean": "group", "std": "none"}})
    [found] = estimate_outcome_advantages([TENSORS], REWARDS, centered)
    assert found.advantages.tolist() == [-4.0, -4.0, -4.5]


def sessions(*calls_and_reward: tuple[int, float]) -> Group:
    """A group of sessions, each with a trajectory of two tokens per call."""
    return Group(
        group_id="0-0-0", row=0, prompt_token_ids=[1], prompt="", answer="",
        trajectories=[
            Trajectory(
                token_ids=[7, 7], loss_mask=[1, 1], behavior_logprobs=[0.0, 0.0], policy_versions=[0, 0],
                finish_reason="stop", reward=reward, score=reward, rollout=rollout,
            )
            for rollout, (calls, reward) in enumerate(calls_and_reward)
            for _ in range(calls)
        ],
    )  # fmt: skip


def advantages_of_sessions(group: Group, **advantage: Any) -> list[float]:
    """By session; all tokens of a session have the same."""
    [plan] = plan_batch([group], version=0, num_ranks=1, minibatches=1, token_budget=64)
    batch = [
        build_microbatch_tensors(microbatch, version=0, device=torch.device("cpu"))
        for microbatch in plan.minibatches[0].microbatches
    ]
    algorithm = AlgorithmSection.model_validate({"advantage": advantage})
    found: dict[int, set[float]] = {}
    for tensors, earned in zip(
        batch, estimate_outcome_advantages(batch, plan.rewards, algorithm), strict=True
    ):
        for sequence, values in zip(tensors.sequences, tensors.by_sequence(earned.advantages), strict=True):
            found.setdefault(sequence.rollout, set()).update(values.tolist())
    assert all(len(values) == 1 for values in found.values())
    return [found[session].pop() for session in sorted(found)]


TEN_CALLS_WON = sessions((10, 1.0), (1, 0.0), (1, 0.0), (1, 0.0))


def test_rollout_counts_once_in_the_group_baseline_regardless_of_its_trajectories() -> None:
    """Mean 1/4 and deviation 0.4330 of the rewards 1, 0, 0, 0: +1.73 and -0.58. Over the 13 calls it would be a mean of
    10/13 and a deviation of 0.4213: +0.55 for the only winner."""
    found = advantages_of_sessions(TEN_CALLS_WON, mean="group", std="group", epsilon=1e-6)
    assert found == pytest.approx([1.7320, *[-0.5774] * 3], abs=1e-3)


def test_leave_one_out_excludes_all_trajectories_of_the_rollout() -> None:
    """The winner against three losers: 1 - 0. A loser against one winner and two losers: 0 - 1/3. Over calls, nine of
    the winner's own would be among its others: 1 - 9/12."""
    found = advantages_of_sessions(TEN_CALLS_WON, mean="group", std="none", leave_one_out=True)
    assert found == pytest.approx([1.0, *[-1 / 3] * 3])


def test_batch_mean_is_over_rollouts() -> None:
    assert advantages_of_sessions(TEN_CALLS_WON, mean="batch", std="none") == [0.75, *[-0.25] * 3]
