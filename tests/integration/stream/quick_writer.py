"""A job that only writes: started by the agent in place of a trainer, `… --attempt FILE --job DIRECTORY`.

Takes sft.steps as the number of lines and the run's notes as the pause in seconds between them.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from pathlib import Path

from oolong.contracts.attempt import JobResult, read_attempt, read_job, write_result
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import CheckpointLine, Histogram, Outbox, Points, StateSnapshot


def main() -> None:
    attempt = read_attempt(sys.argv[sys.argv.index("--attempt") + 1])
    directory = sys.argv[sys.argv.index("--job") + 1]
    spec = attempt.run_spec
    outbox = Outbox(directory, read_job(directory).incarnation)
    for x in range(1, spec.sft.steps + 1):
        values = {"sft/loss": random.random(), "sft/learning_rate": 1 / x}
        outbox.write(Points(axis="step", x=x, values=values))
        outbox.write(
            Points(axis="time", x=x, values={"engine/running_requests": float(x % 7)}, source="engine")
        )
        if x % 50 == 0:
            outbox.write(Histogram(name="lengths", x=x, counts={"1": x}))
            outbox.write(StateSnapshot(name="pipeline", value={"step": x}))
            print(f"step {x}", flush=True)
        time.sleep(float(spec.notes))
    outbox.write(_checkpoint(Path(attempt.directory), spec.sft.steps))
    outbox.close()
    write_result(directory, JobResult(reason=EndReason.COMPLETED))


def _checkpoint(attempt: Path, step: int) -> CheckpointLine:
    """The smallest directory that counts as a committed checkpoint: a run that completes must leave one."""
    directory = attempt / "checkpoints" / f"step-{step:08d}"
    directory.mkdir(parents=True)
    manifest = b'{"files":[]}'
    (directory / "MANIFEST.json").write_bytes(manifest)
    return CheckpointLine(
        step=step,
        directory=str(directory),
        manifest_sha256=hashlib.sha256(manifest).hexdigest(),
        bytes=len(manifest),
        final=True,
    )


if __name__ == "__main__":
    main()
