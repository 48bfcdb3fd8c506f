"""docs/how-to/agent.md, done as it says: its run, and its agent as a process of its own, through the whole relay."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from channels.db import database_sync_to_async

from oolong.contracts.run_spec import RunSpec
from tests.support.pages import block
from tests.unit.control_plane.tunnel.conftest import Site
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import TOKEN, Harness
from tests.unit.rollout.model_files import publish, write_model, write_rows
from tests.unit.rollout.simulation import assert_ledger_is_true

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs" / "how-to" / "agent.md"


def test_the_page_names_every_option_of_the_workflow() -> None:
    for name in ("session_timeout_seconds", "session_export", "sessions:write"):
        assert name in PAGE.read_text()


async def test_the_agent_of_the_page_trains_through_the_relay(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="a test-only package; `python3 manage.py setup` installs it")
    spec = RunSpec.model_validate(yaml.safe_load(block(PAGE, "yaml")))
    (tmp_path / "agent.py").write_text(block(PAGE, "python"))
    model = write_model(tmp_path / "model")
    rows = write_rows(tmp_path / "rows.jsonl", 30)
    run_id = site.world.run.pk
    token = await database_sync_to_async(site.world.token)("sessions:write")
    async with (
        FakeEngine() as engine,
        Harness(tmp_path / "attempt", spec, model, rows, run_id=run_id) as run,
    ):
        running = run.start_worker(engine.port, engine.api_key)
        assert running.session_server is not None
        port = await running.session_server.start(0)
        end = await site.node(SimpleNamespace(port=port), token=TOKEN)  # type: ignore[arg-type]
        agent = await asyncio.create_subprocess_exec(
            sys.executable, str(tmp_path / "agent.py"), run_id,
            env={
                "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "platform"), "HOME": str(tmp_path),
                "OOLONG_URL": site.url, "OOLONG_TOKEN": token,
            },
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            await run.trainer.announce(publish(tmp_path / "weights", 0), "none")
            groups = await run.trainer.take(0, seconds=120)
            await run.trainer.announce(publish(tmp_path / "weights", 1))
            await run.trainer.end()
            async with asyncio.timeout(120):
                said, _ = await agent.communicate()
        finally:
            if agent.returncode is None:
                agent.kill()
        assert agent.returncode == 0, said.decode()
        assert_ledger_is_true(run.controller)
        metrics = running.session_server._manager.metrics()
        await end()
        await running.session_server.close()
    assert len(groups) == 4
    for group in groups:
        assert len(group.trajectories) == spec.rollout.group_size
        for trajectory in group.trajectories:
            # Two turns of the policy with the agent's doubt between them, as one trajectory.
            assert [turn.sampled for turn in trajectory.turns][-3:] == [True, False, True]
            assert trajectory.reward in (0.0, 1.0)
    assert metrics["tunnel/requests"] > 4 * 4 * 4 and metrics["tunnel/bytes"] > 10_000
    assert metrics["session/branches"] == 0
