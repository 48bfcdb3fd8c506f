"""Two web processes, two workers and two clocks over one database behave as one control plane."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.support import model_files
from tests.support.control_plane import ControlPlane
from tests.support.databases import new_database
from tests.support.scripted_node import ScriptedNode

pytestmark = pytest.mark.timeout(900)

WITHIN_SECONDS = 240


@pytest.fixture(scope="module")
def planes(
    postgres_url: str, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    folder = tmp_path_factory.mktemp("several")
    database = new_database(postgres_url, "several_processes")
    made = [_plane(folder / name, database, valkey_url, folder) for name in ("first", "second")]
    made[0].prepare()
    for plane in made:
        plane.folder.mkdir(exist_ok=True)
        for part in ("web", "worker", "beat"):
            plane.start_part(part)
    for plane in made:
        plane.wait_for_web()
    yield made[0], made[1]
    for plane in made:
        plane.close()


def _plane(folder: Path, database_url: str, redis_url: str, shared: Path) -> ControlPlane:
    settings = {"OOLONG_DATA_DIR": str(shared / "store"), "SECRET_KEY": "the-same-for-both-processes"}
    return ControlPlane(folder, database_url=database_url, redis_url=redis_url, settings=settings)


@pytest.fixture(scope="module")
def nodes(planes: tuple[ControlPlane, ControlPlane]) -> Iterator[list[ScriptedNode]]:
    """One node speaks to each web process."""
    made = [
        ScriptedNode(plane.url, plane.manage("join_token").splitlines()[-1], slots=4, step_seconds=0.05)
        for plane in planes
    ]
    for number, node in enumerate(made):
        node.name = f"node-{number}"
    for node in made:
        node.start()
    yield made
    for node in made:
        node.close()


@pytest.fixture(autouse=True)
def _nodes_are_sound(nodes: list[ScriptedNode]) -> Iterator[None]:
    """What went wrong in a thread of a node is reported by the test in which it did."""
    yield
    for node in nodes:
        node.check()


@pytest.fixture(scope="module")
def clients(planes: tuple[ControlPlane, ControlPlane]) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    token = planes[0].token()
    first, second = planes[0].client(token), planes[1].client(token)
    lines = [
        {"question": f"{n}+1", "answer": n + 1, "split": "train" if n < 64 else "eval"} for n in range(128)
    ]
    rows = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    upload = first.post("/uploads?filename=rows.jsonl&purpose=dataset", content=rows).json()["id"]
    dataset = first.post("/datasets", json={"name": "sums"}).json()["id"]
    mapping = {"prompt_column": "question", "answer_column": "answer", "split_column": "split"}
    asked = second.post("/dataset-validations", json={"upload_id": upload, "mapping": mapping})
    validation = f"/dataset-validations/{asked.json()['id']}"
    until(
        lambda: first.get(validation).json()["state"] not in ("QUEUED", "RUNNING"), "the rows are validated"
    )
    made = second.post(f"/datasets/{dataset}/versions", json={"validation_id": asked.json()["id"]})
    assert made.status_code == 201, (made.text, first.get(validation).text)
    archive = model_files.archive(model_files.files())
    upload = first.post("/uploads?filename=tiny.tar&purpose=model", content=archive).json()["id"]
    model = second.post("/models", json={"name": "tiny", "upload_id": upload})
    assert model.status_code == 201, model.text
    until(
        lambda: first.get(f"/models/{model.json()['id']}").json()["state"] == "READY", "the model is checked"
    )
    yield first, second
    first.close()
    second.close()


def spec(name: str, steps: int = 4) -> dict[str, Any]:
    return {
        "spec": {
            "kind": "rl", "name": name, "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"},
            "trainer": {"total_train_steps": steps},
        }
    }  # fmt: skip


def until(ready: Callable[[], Any], what: str, nodes: Iterable[ScriptedNode] = ()) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while not ready():
        for node in nodes:
            node.check()
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def ended(client: httpx.Client, ids: list[str]) -> bool:
    return all(
        client.get(f"/runs/{run_id}").json()["status"] in ("SUCCEEDED", "FAILED", "STOPPED") for run_id in ids
    )


class Follower(threading.Thread):
    """Reads one topic of one web process by SSE."""

    def __init__(self, plane: ControlPlane, token: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.plane, self.token, self.topic = plane, token, topic
        self.frames: dict[int, str] = {}
        self.subscribed = threading.Event()

    def run(self) -> None:
        headers = {"Authorization": self.token}
        with httpx.Client(timeout=None, trust_env=False) as client:
            address = f"{self.plane.url}/api/v1/stream"
            try:
                with client.stream("GET", address, params={"topic": self.topic}, headers=headers) as reply:
                    for line in reply.iter_lines():
                        if line.startswith("data:"):
                            self.take(json.loads(line.removeprefix("data:")))
            except httpx.TransportError:
                return  # its web process was killed

    def take(self, frame: dict[str, Any]) -> None:
        if frame.get("type") == "subscribed":
            self.subscribed.set()
        elif frame.get("seq") is not None:
            self.frames[frame["seq"]] = frame["type"]


def test_runs_are_placed_once_and_both_processes_tell_the_same(
    planes: tuple[ControlPlane, ControlPlane],
    nodes: list[ScriptedNode],
    clients: tuple[httpx.Client, httpx.Client],
) -> None:
    followers = [Follower(plane, clients[0].headers["Authorization"], "runs") for plane in planes]
    for follower in followers:
        follower.start()
    for follower in followers:
        assert follower.subscribed.wait(60)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: clients[n % 2].post("/runs", json=spec(f"run {n}")), range(8)))
    ids = [reply.json()["id"] for reply in replies]
    until(lambda: ended(clients[0], ids), "all runs end", nodes)
    found = [clients[1].get(f"/runs/{run_id}").json() for run_id in ids]
    assert {(run["status"], run["attempt_number"]) for run in found} == {("SUCCEEDED", 1)}
    with psycopg.connect(planes[0].database_url) as connection:
        twice = connection.execute(
            "SELECT count(*) FROM fleet_lease a JOIN fleet_lease b ON a.slot_id = b.slot_id AND a.id < b.id "
            "AND a.granted_at < coalesce(b.released_at, 'infinity') "
            "AND b.granted_at < coalesce(a.released_at, 'infinity')"
        ).fetchone()
        assert twice == (0,), "no slot was leased to two at once"
        asked = "SELECT name, failures FROM core_tick WHERE name IN ('place-jobs', 'advance-runs')"
        until(lambda: len(connection.execute(asked).fetchall()) == 2, "both clocks ticked", nodes)
        ticks = dict(connection.execute(asked).fetchall())
        assert ticks["place-jobs"] == ticks["advance-runs"] == 0
        (last,) = connection.execute(
            "SELECT seq FROM core_livetopic WHERE topic LIKE 'runs:%'"
        ).fetchone() or (0,)
    until(
        lambda: all(max(list(follower.frames), default=0) >= last for follower in followers),
        "both processes told the last frame",
        nodes,
    )
    first, second = (dict(follower.frames) for follower in followers)
    assert [seq for seq in first if first[seq] == "gap"] == []
    shared = set(first) & set(second)
    assert shared and {seq: first[seq] for seq in shared} == {seq: second[seq] for seq in shared}


def test_one_idempotency_key_makes_one_run_whoever_answers(
    clients: tuple[httpx.Client, httpx.Client], nodes: list[ScriptedNode]
) -> None:
    body = spec("only once")
    with ThreadPoolExecutor(6) as pool:
        replies = list(
            pool.map(
                lambda n: clients[n % 2].post("/runs", json=body, headers={"Idempotency-Key": "the-same"}),
                range(6),
            )
        )
    assert {reply.status_code for reply in replies} <= {201, 409}, [reply.text for reply in replies]
    made = {reply.json()["id"] for reply in replies if reply.status_code == 201}
    assert len(made) == 1
    listed = clients[0].get("/runs", params={"name": "only once"}).json()["data"]
    assert [run["id"] for run in listed] == list(made)
    until(lambda: ended(clients[0], list(made)), "the run ends", nodes)


def test_after_kill_9_of_one_of_each_nothing_is_stuck(
    planes: tuple[ControlPlane, ControlPlane],
    nodes: list[ScriptedNode],
    clients: tuple[httpx.Client, httpx.Client],
) -> None:
    """Node 0 loses its web process too: it is silent, not lost, and its run continues when the process is back.

    Every attempt is held before its first step until the processes are dead.
    """
    for node in nodes:
        node.hold()
    ids = [
        clients[n % 2].post("/runs", json=spec(f"through it {n}", steps=40)).json()["id"] for n in range(3)
    ]
    until(
        lambda: any(clients[1].get(f"/runs/{run_id}").json()["status"] == "RUNNING" for run_id in ids),
        "a run runs",
        nodes,
    )
    for part in ("web", "worker", "beat"):
        planes[0].kill_part(part)
    for node in nodes:
        node.go_on()
    alone = clients[1].post("/runs", json=spec("with one of each")).json()["id"]
    assert clients[1].get(f"/runs/{alone}").status_code == 200
    for part in ("web", "worker", "beat"):
        planes[0].start_part(part)
    planes[0].wait_for_web()
    until(lambda: ended(clients[1], [*ids, alone]), "every run ends", nodes)
    found = [clients[1].get(f"/runs/{run_id}").json() for run_id in [*ids, alone]]
    assert {run["status"] for run in found} == {"SUCCEEDED"}
    with psycopg.connect(planes[0].database_url) as connection:
        held = connection.execute("SELECT count(*) FROM fleet_lease WHERE released_at IS NULL").fetchone()
        assert held == (0,)
