"""`oolong reward …`"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from oolong.cli.exit_codes import ExitCode, of_run
from oolong.cli.output import JsonOption, notes, show_json, show_list, show_table
from oolong.client import Client
from oolong.client.models import RewardTest
from oolong.yaml_files import YamlFault, load_yaml

MOST_TRAJECTORIES = 500

app = typer.Typer(no_args_is_help=True, help="Tests of rewards: what a reward pays for, before a run does.")


@app.command("test")
def run_test(
    dataset: Annotated[str, typer.Option(help="dataset version: name@3, name@latest")],
    model: Annotated[
        str | None, typer.Option(help="base model: renders the prompts, and samples if --samples is given")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="checkpoint instead of a base model: id, alias, run_…@20, name@latest")
    ] = None,
    reward: Annotated[str, typer.Option(help="a built-in reward")] = "exact_match",
    function: Annotated[str | None, typer.Option(help="an uploaded reward instead: name@3")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="NAME=VALUE of the reward, the value in YAML")
    ] = None,
    split: Annotated[str, typer.Option(help="of the dataset")] = "train",
    rows: Annotated[int, typer.Option(min=1, help="rows of the split, from the first on")] = 32,
    samples: Annotated[
        int, typer.Option(min=0, help="completions per row from the model, on a free slot")
    ] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="length of those completions at most; 4096 when left out")
    ] = None,
    stored: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="JSON lines: row, or prompt and answer; completion"),
    ] = None,
    from_run: Annotated[
        str | None, typer.Option(help="score the stored trajectories of this run as well")
    ] = None,
    wait: Annotated[bool, typer.Option(help="until it has ended, and print the report")] = True,
    json: JsonOption = False,
) -> None:
    """Test a reward. Exit status 6 unless the result is green."""
    if (model is None) == (checkpoint is None):
        raise typer.BadParameter("give --model or --checkpoint, one of the two", param_hint="--model")
    section: dict[str, Any] = {"options": dict(_option(text) for text in option or [])}
    section |= {"function": function} if function else {"name": reward}
    completions = _stored(stored) if stored else []
    settings = {"rows": rows, "samples": samples}
    settings |= {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
    with Client() as client:
        if from_run:
            completions += _of_run(client, from_run)
        made = client.reward_tests.create(
            dataset=dataset, split=split, reward=section, model=model, checkpoint=checkpoint,
            reward_test=settings, stored=completions,
        )  # fmt: skip
        if not wait:
            show_json(made) if json else print(made.id)
            return
        notes.print(f"{made.id}: waiting for {made.run}", markup=False)
        run = client.runs.wait(made.run)
        made = client.reward_tests.get(made.id)
    _tell(made, json=json)
    if not made.result:
        notes.print(f"error: it ended {run.status}: {run.reason_message}", markup=False)
        raise typer.Exit(of_run(run) or ExitCode.UNEXPECTED)
    if made.result != "green":
        raise typer.Exit(ExitCode.CHECK_FAILED)


@app.command("list")
def list_tests(
    reward: Annotated[str | None, typer.Option(help="only of this reward")] = None, json: JsonOption = False
) -> None:
    """The tests so far, the newest first."""
    with Client() as client:
        found = list(client.reward_tests.list(reward=reward))
    show_list(
        found,
        ("ID", "REWARD", "DATASET", "RESULT", "STATUS", "BY", "WHEN"),
        lambda item: (
            item.id, item.reward, item.dataset.ref, item.result or None, item.status, item.created_by,
            f"{item.created_at:%Y-%m-%d %H:%M}",
        ),
        json=json,
    )  # fmt: skip


@app.command()
def get(
    test_id: Annotated[str, typer.Argument(metavar="TEST", help="id of a test (rwt_…)")],
    json: JsonOption = False,
) -> None:
    """The report of a test."""
    with Client() as client:
        found = client.reward_tests.get(test_id)
    _tell(found, json=json)


def _tell(test: RewardTest, *, json: bool) -> None:
    if json:
        show_json(test)
        return
    print(f"{test.reward} on {test.dataset.ref}: {test.result or test.status}")
    if test.report is None:
        return
    for reason in test.report["reasons"]:
        print(f"  {reason['level']}: {reason['message']}")
    for line in _summary(test.report):
        print(f"  {line}")
    show_table(
        ("PROBE", "MEAN", "MAX", "COUNTS AS RIGHT"),
        (
            (name, _number(probe["mean"]), _number(probe["max"]), f"{probe['success_frac']:.0%} of rows")
            for name, probe in test.report["probes"].items()
        ),
    )


def _summary(report: dict[str, Any]) -> Iterator[str]:
    """What the model's own completions score, and how the function behaves."""
    scores, variance = report["range"], report["zero_variance_frac"]
    if scores is not None and scores["model_mean"] is not None:
        equal = "" if variance is None else f"; on {variance:.0%} of the rows all of them score the same"
        yield f"the model's completions score {scores['model_mean']:.3g} on average{equal}"
    determinism, latency = report["determinism"], report["latency_seconds"]
    if determinism["checked"]:
        yield f"scored twice, {determinism['differing']} of {determinism['checked']} completions differ"
    if latency is not None:
        yield f"a score takes {latency['p50'] * 1000:.3g} ms (p50), {latency['p95'] * 1000:.3g} ms (p95)"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise TyperException(f"--option {text!r}: write NAME=VALUE")
    try:
        return name, load_yaml(value)
    except YamlFault as error:
        raise TyperException(f"--option {text!r}: {error}") from error


def _stored(file: Path) -> list[dict[str, Any]]:
    samples = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            sample = json_module.loads(line)
        except ValueError as error:
            raise TyperException(f"{file}, line {number}: {error}") from error
        samples.append(sample)
    return samples


def _of_run(client: Client, run_id: str) -> list[dict[str, Any]]:
    """Its newest stored trajectories; those of one prompt are one group."""
    groups: dict[str, int] = {}
    return [
        {
            "group": groups.setdefault(found.group_id, len(groups)), "prompt": found.prompt,
            "answer": found.answer, "completion": found.completion, "special_tokens": True,
            "finish_reason": found.finish_reason if found.finish_reason in ("stop", "length") else "stop",
        }
        for found in islice(client.runs.trajectories(run_id), MOST_TRAJECTORIES)
    ]  # fmt: skip
