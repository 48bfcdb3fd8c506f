"""Options of the demo: `manage.py demo` checks them before it starts a stack, and passes them on."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=_steps, default=60, help="train steps of the RL run (20 or more; default 60)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of model, warm start and RL run")


def _steps(text: str) -> int:
    if not text.isdigit() or int(text) < 20:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of 20 or more: the result compares the first and the last ten steps"
        )
    return int(text)
