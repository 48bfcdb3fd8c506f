"""The trainer's own program with a floor under its times: `trainers.rl`, paced by the device model.

Batches are taken, planned, trained on, published and checkpointed by the code of every run, on the tiny model; a step
then lasts at least as long as the model says for the tokens that the batch stands for, and a publication at least
as long as the weights' way to the drive.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from trainers.entrypoint import parse_arguments, run_job


def main() -> None:
    arguments = parse_arguments("The trainer of an emulated attempt.")
    from oolong.contracts.attempt import read_attempt
    from tests.bench.device_model import Emulation
    from trainers.rl import rank0_coordinator, train_loop

    emulation = Emulation.read(Path(read_attempt(arguments.attempt).directory))
    overruns = (arguments.job / "overruns.jsonl").open("a")

    def wait_out(what: str, began: float, floor_seconds: float) -> None:
        floor = emulation.device.real(floor_seconds)
        spent = time.perf_counter() - began
        overruns.write(json.dumps({"what": what, "floor": floor, "spent": spent, "at": time.time()}) + "\n")
        overruns.flush()
        time.sleep(max(0.0, floor - spent))

    class PacedLearner(train_loop.Learner):
        def train(self, plan: Any, timer: Any, **options: Any) -> Any:
            began = time.perf_counter()
            outcome = super().train(plan, timer, **options)
            sequences = [
                one
                for minibatch in plan.minibatches
                for microbatch in minibatch.microbatches
                for one in microbatch.sequences
                if one.loss_positions
            ]
            floor = emulation.device.train_seconds(
                completion_tokens=sum(len(one.loss_positions) for one in sequences),
                trajectories=len(sequences),
                devices=emulation.trainer_devices,
            )
            wait_out("train", began, floor)
            return outcome

    class PacedPublisher(rank0_coordinator.WeightPublisher):
        def write(self, version: int, tensors: Any) -> Any:
            began = time.perf_counter()
            published = super().write(version, tensors)
            wait_out("publish", began, emulation.publish_seconds)
            return published

    train_loop.Learner = PacedLearner
    rank0_coordinator.WeightPublisher = PacedPublisher
    sys.exit(run_job(arguments, train_loop.train))


if __name__ == "__main__":
    main()
