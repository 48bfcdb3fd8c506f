"""`python -m torch.distributed.run ... -m trainers.sft --attempt attempt.json --job JOB_DIRECTORY`"""

from __future__ import annotations

import sys

from trainers.job import parse, run_job


def main() -> None:
    arguments = parse("The trainer of a warm-start attempt.")
    from trainers.sft.run import run  # torch is imported after the command line has been understood

    sys.exit(run_job(arguments, run))


if __name__ == "__main__":
    main()
