#!/usr/bin/env python3
"""A control plane with SYNTHETIC runs, for work on the dashboard: real services, real API, scripted node.

    PYTHONPATH=platform:. .venv/bin/python tests/tools/synthetic_dashboard.py [--port N] [--step-seconds S]

Prints the address and a login link, keeps playing until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from local_stack import postgres, valkey  # noqa: E402
from local_stack.paths import checkout_paths  # noqa: E402
from oolong.client import Client  # noqa: E402
from tests.support import model_files  # noqa: E402
from tests.support.control_plane import ControlPlane  # noqa: E402
from tests.support.ports import reserve_port  # noqa: E402
from tests.support.scripted_node import ScriptedNode  # noqa: E402


@contextmanager
def services(folder: Path) -> Iterator[tuple[str, str]]:
    """PostgreSQL and Valkey in `folder`; yields their URLs."""
    paths = checkout_paths(ROOT)
    run_as = postgres.service_user()
    cluster = postgres.Cluster(
        bin=postgres.binaries(paths.venv, shared=paths.home), data=folder / "postgres", port=reserve_port(),
        password="synthetic", durable=False, run_as=run_as,
    )  # fmt: skip
    cluster.initialize()
    broker = valkey.Broker(
        binary=valkey.binary(paths.venv, shared=paths.home), data=folder / "valkey", port=reserve_port(),
        password="synthetic", durable=False, run_as=run_as,
    )  # fmt: skip
    broker.prepare()
    dropped: dict[str, Any] = run_as.popen_arguments() if run_as else {}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **dropped}
    processes = [
        subprocess.Popen(cluster.argv(), cwd=cluster.data, **quiet),
        subprocess.Popen(broker.argv(), cwd=broker.data, **quiet),
    ]
    try:
        while not (cluster.is_ready() and broker.is_ready()):
            time.sleep(0.1)
        cluster.ensure_database()
        yield (
            f"postgresql://oolong:synthetic@127.0.0.1:{cluster.port}/oolong",
            f"redis://:synthetic@127.0.0.1:{broker.port}/0",
        )
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=20)


def submit_runs(plane: ControlPlane, folder: Path, *, long_steps: int = 400) -> str:
    """A dataset, a model, a finished short run, one of `long_steps` and one that waits; the second's id."""
    rows = "".join(
        json.dumps(
            {"prompt": f"a{n % 9} b{n % 7} c{n % 5}", "answer": str(n % 9 + n % 7 + n % 5), "split": split}
        )
        + "\n"
        for n in range(400)
        for split in ("train", "eval")
    )
    token = plane.token()
    mapping = {"prompt_column": "prompt", "answer_column": "answer", "split_column": "split"}
    (folder / "letters.jsonl").write_text(rows)
    with Client(plane.url, token) as oolong:
        oolong.datasets.upload(
            folder / "letters.jsonl", name="letter-sum", mapping=mapping,
            description="Synthetic rows for the dashboard",
        )  # fmt: skip
        oolong.models.upload(model_files.write(folder / "model"), name="letter-sum-tiny")
    with plane.client(token) as client:

        def made(path: str, **body: Any) -> Any:
            reply = client.post(path, **body)
            if reply.status_code not in (200, 201):
                raise RuntimeError(f"{path}: {reply.status_code} {reply.text}")
            return reply.json()

        def run(name: str, steps: int, priority: int) -> str:
            spec = {
                "kind": "rl", "name": name, "model": {"base_model": "letter-sum-tiny"},
                "dataset": {"version": "letter-sum@latest"}, "trainer": {"total_train_steps": steps},
                "reward": {"options": {"extract": "boxed_at_end"}}, "placement": {"priority": priority},
                "notes": "SYNTHETIC: played by a scripted node, nothing was trained",
            }  # fmt: skip
            return str(made("/runs", json={"spec": spec})["id"])

        run("synthetic, short", 12, 900)
        long = run("synthetic, long", long_steps, 600)
        run("synthetic, waits", 20, 400)
        return long


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--step-seconds", type=float, default=0.5)
    parser.add_argument("--for-seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)  # also where a shell started this in the background, ignoring it
    folder = Path(tempfile.mkdtemp(prefix="oolong-synthetic-"))
    folder.chmod(0o711)
    try:
        with services(folder) as (database_url, redis_url):
            port = options.port or reserve_port()
            plane = ControlPlane(folder / "plane", database_url, redis_url, port=port)
            try:
                play(plane, folder, options)
            finally:
                plane.close()
    except KeyboardInterrupt:
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def play(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
    plane.prepare()
    plane.start()
    token = plane.manage("join_token").splitlines()[-1]
    node = ScriptedNode(plane.url, token, slots=3, step_seconds=options.step_seconds)
    try:
        node.start()
        run_id = submit_runs(plane, folder)
        print(f"{plane.url}/runs/{run_id}\n{plane.url}{plane.login_path()}", flush=True)
        deadline = time.monotonic() + options.for_seconds
        while time.monotonic() < deadline:
            time.sleep(1)
    finally:
        node.close()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
