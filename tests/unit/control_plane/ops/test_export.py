"""`oolong run export` against a control plane."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.telemetry_batch import single_chunk
from tests.unit.control_plane.conftest import Done, Person, SimulatedNode


def test_a_run_is_exported_by_the_command(
    oolong: Callable[..., Done],
    alice: Person,
    node: Callable[..., SimulatedNode],
    start: Callable[..., Any],
    tmp_path: Path,
) -> None:
    first = node()
    run = start(first)
    lines = [
        {
            "type": "points",
            "at": 1000.0 + x,
            "axis": "step",
            "x": x,
            "values": {"loss/policy": x / 4},
            "source": "",
        }
        for x in range(1, 6)
    ]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    shipped = first.client.post(
        "/api/v1/agent/telemetry", data=single_chunk(first.job("trainer"), "main-0.jsonl", body),
        content_type="application/octet-stream", headers={"authorization": f"Bearer {first.credential}"},
    )  # fmt: skip
    assert shipped.json()["chunks"][0]["status"] == 200, shipped.content
    done = oolong("run", "export", run["id"], "--tensorboard", str(tmp_path / "tb"), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"tensorboard": {"points": 5, "left_out": 0}}
    assert len([*(tmp_path / "tb" / run["id"]).glob("events.out.tfevents.*")]) == 1
    again = oolong("run", "export", run["id"], "--tensorboard", str(tmp_path / "tb"), "--json")
    assert json.loads(again.out)["tensorboard"]["points"] == 0


def test_an_export_without_a_target_or_package_says_so(oolong: Callable[..., Done], alice: Person) -> None:
    run = alice.run()
    none = oolong("run", "export", run["id"])
    assert none.code == 2 and "--tensorboard DIR or --wandb PROJECT" in none.err
    missing = oolong("run", "export", run["id"], "--wandb", "letters")
    assert missing.code == 2 and "wandb is not installed here" in missing.err.replace("\n", " ")
    assert oolong("run", "export", "run_none", "--tensorboard", "tb").code == 2
    Path("mine.txt").write_text("mine")
    blocked = oolong("run", "export", run["id"], "--tensorboard", "mine.txt")
    assert blocked.code == 2 and f"mine.txt/{run['id']}: Not a directory" in blocked.err.replace("\n", "")
    (Path("tb") / run["id"]).mkdir(parents=True)
    (Path("tb") / run["id"] / "oolong-export.json").write_text("{}")
    foreign = oolong("run", "export", run["id"], "--tensorboard", "tb")
    assert foreign.code == 2 and "is not what an export left" in foreign.err.replace("\n", " ")
