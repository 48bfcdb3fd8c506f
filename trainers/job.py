"""What every trainer program does around its loop: read its files, join the ranks, leave a verdict."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult, read_attempt, read_job, write_result
from oolong.contracts.lifecycle import EndReason

if TYPE_CHECKING:
    from trainers.ranks import Ranks

Loop = Callable[[AttemptFile, JobFile, Path, "Ranks"], JobResult]
MEETING_FILE = "ranks.store"
GOOD_ENDS = (EndReason.COMPLETED, EndReason.STOPPED_BY_USER)


def parse(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--attempt", type=Path, required=True, help="attempt.json")
    parser.add_argument("--job", type=Path, required=True, help="this job's directory")
    return parser.parse_args()


def run_job(arguments: argparse.Namespace, loop: Loop) -> int:
    """Run the loop on this rank and return its exit code. Ends that have a name are written to result.json.

    Anything else propagates: the agent then sees a job that died, with the traceback as its last log lines.
    """
    from trainers.algorithms.user_loss import LossUnusable
    from trainers.checkpoint import NoValidCheckpoint
    from trainers.data import DatasetUnusable
    from trainers.models.blocks import OptionRefused
    from trainers.models.policy import ModelUnusable
    from trainers.models.selfcheck import PackingBroken
    from trainers.ranks import join_ranks, leave_ranks
    from trainers.rl.controller import ControllerLost

    named_ends: dict[type[Exception], EndReason] = {
        ModelUnusable: EndReason.MODEL_UNUSABLE,
        PackingBroken: EndReason.MODEL_UNUSABLE,
        OptionRefused: EndReason.CONFIG_REFUSED,
        NoValidCheckpoint: EndReason.NO_VALID_CHECKPOINT,
        DatasetUnusable: EndReason.DATASET_UNUSABLE,
        ControllerLost: EndReason.CONTROLLER_DIED,
        LossUnusable: EndReason.CONFIG_REFUSED,
    }
    attempt, job = read_attempt(arguments.attempt), read_job(arguments.job)
    ranks = join_ranks(attempt.device, gpu_share=attempt.gpu_share, meeting_file=arguments.job / MEETING_FILE)
    try:
        result = loop(attempt, job, arguments.job, ranks)
    except tuple(named_ends) as error:
        result = JobResult(reason=named_ends[type(error)], message=str(error))
    print(f"rank {ranks.rank}: {result.reason.value}: {result.message}", flush=True)
    if result.reason in GOOD_ENDS:
        ranks.wait_for_all()
    if ranks.first:
        write_result(arguments.job, result)
    leave_ranks()
    sys.stdout.flush()
    return 0 if result.reason in GOOD_ENDS else 1
