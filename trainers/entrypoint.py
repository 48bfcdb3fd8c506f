"""Entry point of all trainers: read the job's files, join the process group, train, write the result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult, read_attempt, read_job, write_result
from oolong.contracts.lifecycle import EndReason

if TYPE_CHECKING:
    from trainers.distributed.context import DistributedContext

TrainLoop = Callable[[AttemptFile, JobFile, Path, "DistributedContext"], JobResult]
RENDEZVOUS_FILE = "ranks.store"
SUCCESSFUL_REASONS = (EndReason.COMPLETED, EndReason.STOPPED_BY_USER)


def parse_arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--attempt", type=Path, required=True, help="attempt.json")
    parser.add_argument("--job", type=Path, required=True, help="this job's directory")
    return parser.parse_args()


def run_job(arguments: argparse.Namespace, train: TrainLoop) -> int:
    """Run the train loop on this rank and return the exit code. The first rank of each node writes result.json.

    Errors with an end reason become that result. Any other exception propagates: the agent reports a crashed job, with
    the traceback at the end of its log.
    """
    from oolong.system.rpc import RpcUnavailable
    from trainers.algorithms.user_loss import InvalidLoss
    from trainers.checkpoint import InvalidCheckpoint
    from trainers.dataset import InvalidDataset
    from trainers.distributed.context import (
        init_distributed,
        is_first_of_node,
        shutdown_distributed,
        spans_nodes,
    )
    from trainers.models.decoder_layers import UnsupportedOption
    from trainers.models.packing_check import PackingMismatch
    from trainers.models.policy import InvalidModel

    reasons: dict[type[Exception], EndReason] = {
        InvalidModel: EndReason.MODEL_INVALID,
        PackingMismatch: EndReason.MODEL_INVALID,
        UnsupportedOption: EndReason.CONFIG_REJECTED,
        InvalidCheckpoint: EndReason.NO_VALID_CHECKPOINT,
        InvalidDataset: EndReason.DATASET_INVALID,
        RpcUnavailable: EndReason.CONTROLLER_CRASHED,
        InvalidLoss: EndReason.CONFIG_REJECTED,
    }
    attempt, job = read_attempt(arguments.attempt), read_job(arguments.job)
    context = init_distributed(
        attempt.device,
        gpu_share=attempt.gpu_share,
        rendezvous_file=None if spans_nodes() else arguments.job / RENDEZVOUS_FILE,
    )
    try:
        result = train(attempt, job, arguments.job, context)
    except tuple(reasons) as error:
        result = JobResult(reason=reasons[type(error)], message=str(error))
    print(f"rank {context.rank}: {result.reason.value}: {result.message}", flush=True)
    succeeded = result.reason in SUCCESSFUL_REASONS
    if succeeded:
        context.barrier()
    if is_first_of_node():
        write_result(arguments.job, result)
    shutdown_distributed()
    sys.stdout.flush()
    return 0 if succeeded else 1
