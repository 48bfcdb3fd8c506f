"""`oolong run simulate` asks the API with the options that are given, and prints the rows that it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oolong.client.models import SimulatedLayout, Simulation
from tests.support.scripted_api import Answer, ScriptedApi, shaped


def row(engines: int, ranks: int, speed: float, **fields: Any) -> dict[str, Any]:
    split = {"engines": engines, "trainer_ranks": ranks, "trained_tokens_per_second": speed}
    return shaped(SimulatedLayout, **{"change": "", "trainer_idle_frac": 0.25, **split, **fields})


def answer(**fields: Any) -> dict[str, Any]:
    best = row(3, 1, 12_345.6, step_seconds=10.5)
    return shaped(
        Simulation,
        **{
            "source": {"kind": "data_sheet", "gpu": "H100", "from_runs": 0, "lengths": "given"},
            "lengths": {"mean": 64, "spread": 0.75, "limit": 512, "prompt": 8},
            "given": row(1, 3, 4_000), "best": best, "splits": [best], "staleness": [], "batches": [],
            "sensitivity": [row(3, 1, 9_000, change="decoding twice as long")],
            "advice": ["3 engines and 1 trainer ranks train 3.09 times as fast as 1 and 3."], **fields,
        },
    )  # fmt: skip


def test_the_options_are_sent_and_each_row_is_a_line(api: ScriptedApi, oolong: Any, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("kind: rl\nname: x\n")
    api.script["POST runs/simulate"] = Answer(answer())
    done = oolong(
        "run", "simulate", "-f", str(spec), "--devices", "4", "--gpu", "H100", "--mean-tokens", "64"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(api.asked[-1].body) == {
        "spec": {"kind": "rl", "name": "x"}, "devices": 4, "gpu": "H100", "mean_tokens": 64,
    }  # fmt: skip
    fields, table = done.stdout.split("\n\n")
    assert "best split     3 engines, 1 trainer ranks" in fields and "12,346 trained tokens/s" in fields
    assert "data sheet of the H100" in fields and "64 tokens on average (given)" in fields
    names = [line.split("\t")[:3] for line in table.splitlines()]
    assert names == [["as in the spec", "1", "3"], ["split", "3", "1"], ["decoding twice as long", "3", "1"]]


def test_a_spec_that_cannot_train_as_it_stands_has_no_row(
    api: ScriptedApi, oolong: Any, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("kind: rl\nname: x\n")
    measured = {"kind": "measured", "gpu": None, "from_runs": 2, "lengths": "measured"}
    api.script["POST runs/simulate"] = Answer(answer(given=None, source=measured))
    done = oolong("run", "simulate", "-f", str(spec))
    assert "as in the spec" not in done.stdout and "measured by 2 earlier runs" in done.stdout
    assert json.loads(api.asked[-1].body) == {"spec": {"kind": "rl", "name": "x"}}
