"""The worked examples of docs/concepts (gate, interruption, staleness, ledger) are what the code computes."""

from __future__ import annotations

from gpu_agents.rollout.controller.batch_selection import Candidate, select_batch
from gpu_agents.rollout.controller.evaluation_scores import pass_at_k
from gpu_agents.rollout.controller.filtering import FilterConfig
from gpu_agents.rollout.controller.gate import GateConfig, admit
from gpu_agents.rollout.controller.staleness_stats import SelectionBias, measure_batch
from oolong.contracts.rollout import ClaimedGroup, ClaimRequest, FailRequest, SubmitRequest, TakeRequest
from tests.unit.rollout.simulation import announcement, finished_group, new_controller, rules


def test_the_gate() -> None:
    """B = 4, eta = 1, version 3, N' = 19."""
    gate = GateConfig(groups_per_step=4, max_staleness=1, max_concurrent_groups=99, total_train_steps=99)
    admission = admit(gate, version=3, held=19, running=2)
    assert (admission.groups, admission.refusal) == (1, None)
    assert 19 // 4 <= 3 + 1 < 20 // 4
    assert admit(gate, version=3, held=20, running=3).refusal == "staleness"
    assert admit(gate, version=3, held=19, running=2).groups == 1


def test_the_interrupted_completion() -> None:
    claimed = ClaimedGroup(
        claim_id="c", group_id="g", row=0, prompt_token_ids=[1], prompt="", answer="", group_size=1,
        claim_version=3,
    )  # fmt: skip
    measured = measure_batch([finished_group(claimed, [3] * 10 + [4] * 6)], version=5)
    assert (measured.by_trajectory, measured.by_token, measured.spans) == ({2: 1}, {2: 10, 1: 6}, [2])


def test_wait() -> None:
    finished = [Candidate(group_id=name, order=i, deadline=5 + 1) for i, name in enumerate("ab")]

    def choice(claimed_at: int):
        return select_batch(
            "wait",
            version=5,
            groups=2,
            finished=finished,
            unfinished_deadlines=[claimed_at + 1],
        )

    assert choice(4).straggler
    assert choice(5).batch == ["a", "b"]


def test_the_selection_bias() -> None:
    bias = SelectionBias(dropped_trajectories=1, dropped_tokens=50, kept_trajectories=3, kept_tokens=30)
    assert bias.ratio == 0.5


def test_the_ledger() -> None:
    controller = new_controller(
        rules(group_size=2, max_staleness=9, filter=FilterConfig(kind="zero_variance")), rows=99
    )
    worker = "rollout-0/0"

    def claim(groups: int) -> list[ClaimedGroup]:
        request = ClaimRequest(
            worker_id=worker, engine_version=controller.state.versions.number, max_groups=groups
        )
        return controller.workers.claim(request, now=0.0).groups

    def submit(claimed: ClaimedGroup, rewards: tuple[float, ...] = (0.0, 1.0)) -> None:
        group = finished_group(claimed, [claimed.claim_version] * 10, rewards=rewards)
        request = SubmitRequest(worker_id=worker, claim_id=claimed.claim_id, group=group)
        controller.workers.submit(request, now=0.0)

    controller.trainer.announce(announcement(0, "none"))
    for version in range(3):
        for claimed in claim(4):
            submit(claimed)
        controller.trainer.take(TakeRequest(version=version, groups=4), now=0.0)
        if version < 2:
            controller.trainer.announce(announcement(version + 1))
    *running, failed, buffered, filtered, filtered_too = claim(8)
    assert len(running) == 4
    submit(buffered)
    submit(filtered, rewards=(1.0, 1.0))
    submit(filtered_too, rewards=(0.0, 0.0))
    controller.workers.fail(
        FailRequest(
            worker_id=worker,
            claim_id=failed.claim_id,
            reason="reward_error",
            message="",
            generated_tokens=12,
        ),
        now=0.0,
    )
    groups, tokens = controller.state.ledger.counts(), controller.state.tokens.counts()
    assert (groups.drawn, groups.trained, groups.dropped) == (20, 8, {"error": 1, "filtered": 2})
    assert (groups.waiting, groups.running, groups.buffered, groups.taken) == (0, 4, 1, 4)
    assert (tokens.generated, tokens.trained, tokens.in_hand) == (312, 160, 100)
    assert tokens.dropped == {"error": 12, "filtered": 40}


def test_pass_at_k() -> None:
    assert pass_at_k(1, 4, 2) == 0.5
