"""`python -m trainers.distributed.launch NUM_RANKS trainers.dpo --attempt attempt.json --job JOB_DIRECTORY`"""

from __future__ import annotations

import sys

from trainers.entrypoint import parse_arguments, run_job


def main() -> None:
    arguments = parse_arguments("Direct preference optimization: the trainer job of one attempt.")
    from trainers.dpo.train_loop import train  # imports torch: parse the command line first

    sys.exit(run_job(arguments, train))


if __name__ == "__main__":
    main()
