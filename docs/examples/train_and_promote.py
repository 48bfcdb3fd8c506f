"""Upload a dataset, train, compare with what is in use, promote: the SDK in one file.

In the folder that `oolong quickstart` made: python3 train_and_promote.py letters.jsonl run.yaml live
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from oolong.client import Client, NotFound
from oolong.client.models import Checkpoint, DatasetVersion, Run

# Which column is what, here in the quickstart's letters.jsonl.
MAPPING = {
    "prompt_column": "question",
    "answer_column": "answer",
    "completion_column": "solution",
    "split_column": "split",
}


def train(client: Client, spec: dict[str, Any], dataset: DatasetVersion) -> Run:
    """On exactly this version; a name such as rows@latest may mean another one a moment later."""
    run = client.runs.create({**spec, "dataset": {**spec["dataset"], "version": dataset.id}})
    print(f"{run.id} is {run.status}")
    return client.runs.wait(run.id, on_change=lambda found: print(found.status, found.train_step))


def in_use(client: Client, alias: str) -> Checkpoint | None:
    try:
        return client.checkpoints.resolve(alias)
    except NotFound:
        return None


def main(rows: Path, spec: Path, alias: str) -> int:
    with Client() as client:
        dataset = client.datasets.upload(rows, name=rows.stem, mapping=MAPPING)
        run = train(client, yaml.safe_load(spec.read_text()), dataset)
        if run.status != "SUCCEEDED" or run.latest_checkpoint is None:
            print(run.advice)
            return 1
        accuracy = client.runs.last_value(run.id, "eval/accuracy")
        before = in_use(client, alias)
        best = client.runs.last_value(before.run.id, "eval/accuracy") if before is not None else None
        if accuracy is None or (best is not None and accuracy < best):
            print(f"not promoted: {accuracy} against {best}")
            return 1
        moved = client.checkpoints.promote(run.latest_checkpoint.id, alias)
        print(f"{moved.name} is step {moved.checkpoint.step} of {moved.checkpoint.run.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
