"""Whether rollouts of several turns learn: `python -m tests.bench.turn_curves multi-turn|python-tool`.

The whole runtime with real SGLang on the processor, as `docs/benchmarks/<name>.yaml` says. The model was warmed up on
letter-sum, then on demonstrations of this kind of conversation, with noise for reinforcement learning to remove. Prints
the reward by step and the means of its beginning and end as JSON; it is no measure of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from oolong.contracts.telemetry import Points
from oolong.samples.demo_dataset import LetterSum, rows, solution_text
from tests.bench.warm_policy import BENCH_DIRECTORY, warm_policy
from tests.support.tiny_specs import tiny_run_spec
from tests.tools.local_attempt import ROOT, LocalAttempt, complete, node_python, trained_once

SPECS = ROOT / "docs" / "benchmarks"
TOLD = (
    "reward/mean",
    "reward/score_mean",
    "workflow/turns_mean",
    "workflow/tool_calls_mean",
    "staleness/mean",
)
FIRST, LAST = 5, 10  # steps whose means are compared
NOISE = 0.12  # chance that a number of a demonstration is wrong
RETRIES = 0.4  # share of the demonstrations that answer after a wrong answer
WARM_UP = {"steps": 600, "validation_split": None, "required_greedy_accuracy": None}
GUESSES = 0.3  # share of the demonstrations that do without the tool, and guess


def digits_of(question: str) -> list[int]:
    return [int(word[1:]) for word in question.split()]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


Shown = tuple[list[dict[str, str]], str]  # messages, and what the policy should say then


def of_turns(question: str, rng: random.Random, *, noise: float, feedback: str) -> Iterator[Shown]:
    """Answers, and answers to the feedback on a wrong one."""
    digits = digits_of(question)
    answer = solution_text(digits, noise=noise, rng=rng)
    if rng.random() >= RETRIES:
        yield [user(question)], answer
        return
    wrong = solution_text(digits)
    while wrong.endswith(f"{{{sum(digits)}}}"):
        wrong = solution_text(digits, noise=0.3, rng=rng)
    yield [user(question), said(wrong), user(feedback)], answer


def of_the_tool(question: str, rng: random.Random, *, noise: float, feedback: str) -> Iterator[Shown]:
    """A program and what is made of its output; or a guess, where there is noise at all."""
    digits = digits_of(question)
    if noise and rng.random() < GUESSES:
        yield [user(question)], f"\\boxed{{{rng.randint(3, 99)}}}"
        return
    copied = [rng.randrange(10) if rng.random() < noise else digit for digit in digits]
    named = ",".join(
        f"{letter}={digit}" for letter, digit in zip(string.ascii_lowercase, copied, strict=False)
    )
    program = f"```python\nsum(dict({named}).values())\n```"
    output = str(sum(copied))
    if rng.random() < 0.5:
        yield [user(question)], program
    else:
        yield [user(question), said(program), user(output)], f"\\boxed{{{output}}}"


SHOWN = {"multi-turn": of_turns, "python-tool": of_the_tool}


def write_rows(file: Path, name: str, *, feedback: str) -> Path:
    """The letter-sum questions as canonical rows, with demonstrations of this kind of conversation."""
    rng = random.Random(f"{name}/1")
    with file.open("w") as lines:
        for number, row in enumerate(rows(LetterSum())):
            messages, completion = [user(row["question"])], None
            if row["split"] in ("sft", "validation"):
                noise = NOISE if row["split"] == "sft" else 0.0
                [(messages, completion)] = SHOWN[name](row["question"], rng, noise=noise, feedback=feedback)
            line = {
                "row": number, "split": row["split"], "messages": messages, "answer": row["answer"],
                "completion": completion,
            }  # fmt: skip
            lines.write(json.dumps(line) + "\n")
    return file


def warmed_up(directory: Path, dataset: Path) -> Path:
    """The letter-sum policy after demonstrations of this conversation; made once."""
    spec = tiny_run_spec(
        {"kind": "sft", "name": "warm-up", "model": {"base_model": "warm"},
         "dataset": {"version": "local", "split": "sft"}, "sft": WARM_UP}
    )  # fmt: skip
    return trained_once(directory / "warm-up", spec, warm_policy().model_directory, dataset, node_python())


def run(name: str, *, seed: int) -> dict[str, Any]:
    document = yaml.safe_load((SPECS / f"{name}.yaml").read_text())
    spec = tiny_run_spec(document | {"seed": seed})
    directory = BENCH_DIRECTORY / name
    directory.mkdir(parents=True, exist_ok=True)
    dataset = write_rows(directory / "rows.jsonl", name, feedback=spec.workflow.feedback)
    model = warmed_up(directory, dataset)
    attempt = LocalAttempt(
        directory=directory / f"run-{time.strftime('%H%M%S')}", spec=spec, model_directory=model, dataset_file=dataset,
        node_python=node_python(),
    )  # fmt: skip
    began = time.monotonic()
    complete(attempt, "the run", timeout=3600)
    points = [line for job in attempt.jobs.values() for line in job.lines() if isinstance(line, Points)]
    by_step = [line.values for line in sorted(points, key=lambda one: one.x)]
    curves = {
        metric: [value for values in by_step if (value := values.get(metric)) is not None] for metric in TOLD
    }
    summary = attempt.summaries()["controller"]
    return {
        "name": name,
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "first": {metric: round(mean(values[:FIRST]), 3) for metric, values in curves.items() if values},
        "last": {metric: round(mean(values[-LAST:]), 3) for metric, values in curves.items() if values},
        "ledger_balances": summary["ledger"]["balances"] and summary["tokens"]["balances"],
        "curves": {metric: [round(value, 3) for value in values] for metric, values in curves.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=SHOWN)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.name, seed=arguments.seed)))


if __name__ == "__main__":
    main()
