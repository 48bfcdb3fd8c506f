"""Several turns on the real engine: the trainer sees the very context that the engine sampled from."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gpu_agents.rollout.chat_template import ChatTemplate
from oolong.contracts.rollout import Group, Trajectory
from tests.integration.rollout.conftest import RealEngine, TinyModel, run_with_node_python
from tests.unit.rollout.harness import Harness, run_spec
from tests.unit.rollout.model_files import write_rows
from tests.unit.rollout.simulation import assert_ledger_is_true

pytestmark = pytest.mark.engine

STEPS, MOST_STEPS = 3, 20
TEMPERATURE = 0.9


def of_several_turns(groups: list[Group]) -> list[Trajectory]:
    return [t for group in groups for t in group.trajectories if len(t.turns) > 1]


def enough(groups: list[Group]) -> bool:
    """How many a version finds in the middle is up to the pace of the machine."""
    several = of_several_turns(groups)
    return len(several) >= 10 and sum(len(set(t.policy_versions)) > 1 for t in several) >= 5


async def test_the_trainers_forward_over_all_turns_gives_the_engines_log_probabilities(
    tiny: TinyModel, real_engine: RealEngine, tmp_path: Path
) -> None:
    """Versions change within turns and between them, and every answer is wrong, so that all turns are used."""
    spec = run_spec(
        staleness={"max": 4, "on_straggler": "keep"},
        workflow={"name": "multi_turn", "max_turns": 3, "feedback": "Wrong. Again, please: ☕"},
        rollout={
            "group_size": 4,
            "max_new_tokens": 240,
            "engine_max_running_requests": 32,
            "temperature": TEMPERATURE,
        },
    )
    rows = write_rows(tmp_path / "rows.jsonl", 60)
    groups: list[Group] = []
    async with Harness(tmp_path / "attempt", spec, tiny.base, rows, reward=lambda _: 0.0) as run:
        run.start_worker(real_engine.port, real_engine.api_key)
        await run.trainer.announce(tiny.publish(0, tmp_path / "weights"), "none")
        version = 0
        while version < STEPS or (version < MOST_STEPS and not enough(groups)):
            groups += await run.trainer.take(version)
            version += 1
            await run.trainer.announce(tiny.publish(version, tmp_path / "weights"))
        assert_ledger_is_true(run.controller)

    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    several = of_several_turns(groups)
    assert len(several) >= 10, "hardly any rollout has a second turn"
    assert enough(groups), "hardly any of them spans versions"
    feedback = ChatTemplate(tiny.base).encode("<|user|>Wrong. Again, please: ☕<|end|><|assistant|>")
    for trajectory in several:
        start = trajectory.turns[0].tokens
        assert trajectory.token_ids[start : start + trajectory.turns[1].tokens] == feedback

    file = tmp_path / "groups.msgpack"
    file.write_bytes(msgspec.msgpack.encode(groups))
    printed = run_with_node_python(
        tiny.node_python, "recompute_by_trainer.py", str(file), str(tiny.weights), str(TEMPERATURE)
    )
    result = json.loads(printed)
    print(result, f"{len(several)} of {len(trajectories)} have several turns")
    assert result["tokens"] == sum(sum(trajectory.loss_mask) for trajectory in trajectories)
    assert result["max"] < 1e-4, result
