"""Rows of a checkpoint registry, for tests and screenshots of its pages: `python manage.py shell -c` calls `fill`.

The runs were submitted through the API, so that their specs are real; here they get the end that they never had.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

from control_plane.assets.storage import store
from control_plane.checkpoints.models import Checkpoint, CheckpointKind, CheckpointState
from control_plane.core.infra import clock
from control_plane.runs.models import Run
from tests.support.checkpoint_tars import pack_checkpoint

DAY = timedelta(days=1)


def tar_of(marker: str, *, adapter: bool = False) -> bytes:
    model = {
        "hf/config.json": b'{"model_type": "qwen3"}',
        "hf/model.safetensors": marker.encode() * 4000,
        "hf/tokenizer.json": b"{}",
    }
    files = {"adapter/adapter_model.safetensors": marker.encode() * 90} if adapter else model
    return pack_checkpoint({**files, "trainer.json": json.dumps({"marker": marker}).encode()})


def checkpoint(
    run: Run, step: int, *, age_days: float = 0.0, adapter_of: Checkpoint | None = None, **changes: Any
) -> Checkpoint:
    """A stored checkpoint of a run, with the bytes of one."""
    blob = store.put([tar_of(f"{run.pk} {step}", adapter=adapter_of is not None)])
    at = clock.now() - age_days * DAY
    fields: dict[str, Any] = {
        "state": CheckpointState.STORED, "tar_sha256": blob.sha256, "stored_at": at,
        "content": "adapter" if adapter_of else "model", "base_checkpoint": adapter_of,
        "metrics": {"reward_mean": 0.4 + step / 200}, **changes,
    }  # fmt: skip
    return Checkpoint.objects.create(
        project=run.project, run_id=run.pk, run_name=run.name, attempt_id=f"att_{run.pk}", attempt_number=1,
        node_id="node_scripted", step=step, manifest_sha256=hashlib.sha256(f"{run.pk} {step}".encode()).hexdigest(),
        bytes=blob.bytes, created_at=at, **fields,
    )  # fmt: skip


def ended(run_id: str, **changes: Any) -> Run:
    run = Run.objects.get(pk=run_id)
    now = clock.now()
    for name, value in {
        "status": "SUCCEEDED", "reason": "completed", "attempt_number": 1, "started_at": now, "ended_at": now,
        "pending_reason": "", "queue_position": None, **changes,
    }.items():  # fmt: skip
        setattr(run, name, value)
    run.save()
    return run


def fill(*, warm_start: str, first: str, second: str) -> None:
    """`first` starts from the weights of `warm_start`, and `second` from the last checkpoint of `first`."""
    weights = checkpoint(ended(warm_start), 60, age_days=6, kind=CheckpointKind.WEIGHTS, final=True)
    trained = ended(first, initial_checkpoint=weights, base_model=None)
    for step in (20, 40):
        checkpoint(trained, step, age_days=4 - step / 40)
    evaluated = {"reward_mean": 0.81, "eval/accuracy": 0.78, "eval/accuracy_low": 0.74, "eval/prompts": 256.0}
    best = checkpoint(trained, 60, age_days=2, final=True, metrics=evaluated)
    freed = checkpoint(trained, 10, age_days=5)
    freed.state, freed.deleted_at = CheckpointState.DELETED, clock.now()
    freed.save()
    again = ended(second, initial_checkpoint=best, base_model=None)
    checkpoint(again, 20, age_days=0.2, adapter_of=best)
    checkpoint(again, 40, state=CheckpointState.LOCAL, tar_sha256="", stored_at=None, metrics={})


def fill_many(run_id: str, count: int) -> None:
    """A long history of one run."""
    run = ended(run_id)
    for step in range(1, count + 1):
        checkpoint(run, step, age_days=30 - step / count)


def pass_gate(run_id: str, *, low: float) -> None:
    """The end of a gate's eval run, with this lower bound of its accuracy."""
    scores = {"accuracy": low + 0.03, "accuracy_interval": [low, low + 0.06], "prompts": 64}
    ended(run_id, summary={"evaluation": {"end": scores}})
