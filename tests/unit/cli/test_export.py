"""`oolong run export`: the points of a run in the files of other tools, each once."""

from __future__ import annotations

import json
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto import event_pb2

from oolong.client.models import Metrics, Run, Series
from oolong.exporting import points
from oolong.exporting.points import tag_of
from oolong.exporting.tensorboard import NotInstalled, NotOurs, export_tensorboard
from oolong.exporting.wandb import export_wandb
from tests.support.scripted_api import shaped

Rows = dict[tuple[str, str], dict[int, float | None]]


class Runs:
    """Answers as the API does: ascending points after `after_x`, at most `limit` of each line."""

    def __init__(self, rows: Rows, attempt: int = 1) -> None:
        self.rows, self.attempt, self.asked = rows, attempt, 0

    def get(self, run_id: str) -> Run:
        return Run.model_construct(
            id=run_id, name="a run", attempt_number=self.attempt, spec={"seed": 1}, tags=["x"]
        )

    def metrics(self, run_id: str, names: Any, **asked: Any) -> Metrics:
        assert (asked["axis"], asked["join"]) == ("step", "attempts")
        self.asked += 1
        series = []
        for (name, source), line in self.rows.items():
            after = -1 if asked["after_x"] is None else asked["after_x"]
            xs = sorted(x for x in line if x > after)[: asked["limit"]]
            series.append(shaped(
                Series, name=name, axis="step", source=source, attempt=1, x=xs,
                value=[line[x] for x in xs], at=[1000.0 + x for x in xs],
            ))  # fmt: skip
        return Metrics.model_validate({"series": [one for one in series if one["x"]], "seq": 0})


def events(folder: Path) -> list[tuple[str, int, float, float]]:
    """(tag, step, value, wall time) of every event file, in the order of writing; checks the framing."""
    found = []
    for file in sorted(folder.glob("events.out.tfevents.*"), key=lambda file: int(file.suffix[1:])):
        for data in _records(file.read_bytes()):
            event = event_pb2.Event.FromString(data)
            found += [(one.tag, event.step, one.simple_value, event.wall_time) for one in event.summary.value]
    return found


def _records(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        yield data[position + 12 : position + 12 + length]
        position += 12 + length + 4
    assert position == len(data)


def line(steps: int) -> dict[int, float | None]:
    return {step: step / 2 for step in range(steps)}


def test_points_lie_at_their_step_and_their_time(tmp_path: Path) -> None:
    rows: Rows = {("loss/policy", "trainer"): line(3), ("engine/tokens", "rollout-0/engine"): {1: 7.0}}
    done = export_tensorboard(Runs(rows), "run_1", tmp_path)
    assert (done.points, done.steps) == (4, {0, 1, 2})
    assert events(tmp_path / "run_1") == [
        ("loss/policy", 0, 0.0, 1000.0),
        ("engine/tokens/rollout-0/engine", 1, 7.0, 1001.0),
        ("loss/policy", 1, 0.5, 1001.0),
        ("loss/policy", 2, 1.0, 1002.0),
    ]


def test_again_only_what_is_new_is_written(tmp_path: Path) -> None:
    runs = Runs({("loss/policy", "trainer"): line(3)})
    export_tensorboard(runs, "run_1", tmp_path)
    assert export_tensorboard(runs, "run_1", tmp_path).points == 0
    assert len([*(tmp_path / "run_1").glob("events*")]) == 1, "nothing new, no new file"
    runs.rows[("loss/policy", "trainer")] = line(5)
    assert export_tensorboard(runs, "run_1", tmp_path).points == 2
    assert [(step, value) for _, step, value, _ in events(tmp_path / "run_1")] == [
        (n, n / 2) for n in range(5)
    ]


def test_a_new_attempt_did_steps_again_so_the_files_are_written_anew(tmp_path: Path) -> None:
    export_tensorboard(Runs({("loss/policy", "trainer"): line(5)}), "run_1", tmp_path)
    (tmp_path / "run_1" / "mine.txt").write_text("mine")
    again: Rows = {("loss/policy", "trainer"): {**line(3), 3: 9.0}}
    export_tensorboard(Runs(again, attempt=2), "run_1", tmp_path)
    assert [value for _, _, value, _ in events(tmp_path / "run_1")] == [0.0, 0.5, 1.0, 9.0]
    assert (tmp_path / "run_1" / "mine.txt").exists()


def test_long_lines_come_in_pages_and_each_point_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "PAGE", 4)
    rows: Rows = {
        ("a", "trainer"): line(11),
        ("b", "trainer"): dict.fromkeys(range(0, 40, 4), 1.0),
        ("c", "trainer"): line(2),
    }
    runs = Runs(rows)
    done = export_tensorboard(runs, "run_1", tmp_path)
    assert runs.asked > 2 and done.points == 11 + 10 + 2
    found = [(tag, step) for tag, step, _, _ in events(tmp_path / "run_1")]
    assert len(found) == len(set(found)) == done.points


def test_what_is_not_finite_is_counted_and_left_out(tmp_path: Path) -> None:
    done = export_tensorboard(
        Runs({("loss/policy", "trainer"): {0: 1.0, 1: None, 2: 2.0}}), "run_1", tmp_path
    )
    assert (done.points, done.left_out) == (2, 1)


def test_a_state_that_is_not_ours_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run_1").mkdir()
    (tmp_path / "run_1" / "oolong-export.json").write_text("{}")
    with pytest.raises(
        NotOurs, match=r"run_1/oolong-export.json is not what an export left .*another folder"
    ):
        export_tensorboard(Runs({}), "run_1", tmp_path)


def test_wandb_gets_all_values_of_a_step_at_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb itself is not here: this stands for its two calls, `init` and `log`."""
    logged: list[Any] = []
    begun: list[dict[str, Any]] = []

    def init(**words: Any) -> Any:
        begun.append(words)
        return types.SimpleNamespace(
            log=lambda values, *, step: logged.append((step, values)),
            finish=lambda: logged.append("finished"),
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    runs = Runs({("loss/policy", "trainer"): line(2), ("reward/mean", "trainer"): {1: 0.25}})
    export_wandb(runs, "run_1", "letters", tmp_path)
    assert logged == [(0, {"loss/policy": 0.0}), (1, {"loss/policy": 0.5, "reward/mean": 0.25}), "finished"]
    expected = {
        "project": "letters",
        "id": "run_1",
        "resume": "allow",
        "mode": "offline",
        "config": {"seed": 1},
    }
    assert expected.items() <= begun[0].items()
    runs.rows[("loss/policy", "trainer")][2] = 1.0
    assert export_wandb(runs, "run_1", "letters", tmp_path).points == 1
    runs.attempt = 2
    export_wandb(runs, "run_1", "letters", tmp_path)
    assert begun[-1]["id"] == "run_1-2", "a logged step cannot be logged again"


def test_without_wandb_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(NotInstalled, match="wandb is not installed here: pip install wandb"):
        export_wandb(Runs({}), "run_1", "letters", tmp_path)


def test_the_trainers_names_are_plain() -> None:
    assert tag_of("loss/policy", "trainer") == tag_of("loss/policy", "") == "loss/policy"
    assert tag_of("tokens", "rollout-1") == "tokens/rollout-1"


def test_the_state_is_readable(tmp_path: Path) -> None:
    export_tensorboard(Runs({("loss/policy", "trainer"): line(2)}), "run_1", tmp_path)
    state = json.loads((tmp_path / "run_1" / "oolong-export.json").read_text())
    assert (state["run_id"], state["attempt"], state["reached"]) == ("run_1", 1, {"loss/policy": 1})
