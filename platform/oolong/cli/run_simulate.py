"""`oolong run simulate`: how fast a spec would train on a number of slots, and how to split them."""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_fields, show_json, show_table
from oolong.cli.run_plan import FileOption
from oolong.cli.spec_changes import DatasetOption, SetOption, change_spec
from oolong.cli.spec_file import TemplateOption, read_spec
from oolong.client import Client
from oolong.client.models import SimulatedLayout, Simulation

app = typer.Typer()
COLUMNS = (
    "", "engines", "ranks", "max staleness", "groups/step", "tokens/s", "s/step", "trainer idle", "rollout idle",
    "staleness",
)  # fmt: skip


@app.command()
def simulate(
    file: FileOption,
    devices: Annotated[
        int | None,
        typer.Option("--devices", help="slots to divide; as many as the spec asks for if left out"),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="take the data sheet of this GPU, e.g. H100, not measurements")
    ] = None,
    mean_tokens: Annotated[
        int | None, typer.Option("--mean-tokens", help="mean completion length; as measured if left out")
    ] = None,
    dataset: DatasetOption = None,
    change: SetOption = None,
    template: TemplateOption = None,
    json: JsonOption = False,
) -> None:
    """Simulation speed, idle time and staleness of a spec, and find the fastest split of the slots."""
    spec = read_spec(file)
    change_spec(spec, dataset=dataset, changes=change)
    with Client() as client:
        found = client.runs.simulate(
            spec, template=template, devices=devices, gpu=gpu, mean_tokens=mean_tokens
        )
    if json:
        show_json(found)
    else:
        _show(found)


def _show(found: Simulation) -> None:
    source, lengths, best = found.source, found.lengths, found.best
    times = (
        f"data sheet of the {source.gpu}" if source.gpu else f"measured by {source.from_runs} earlier runs"
    )
    show_fields(
        {
            "best split": f"{best.engines} engines, {best.trainer_ranks} trainer ranks",
            "speed": f"{best.trained_tokens_per_second:,.0f} trained tokens/s, {best.step_seconds:.1f} s a train step",
            "whole run": f"{found.run_seconds / 3600:.2f} h, {found.gpu_hours:.1f} slot-hours",
            "service times": times,
            "completions": f"{lengths.mean:.0f} tokens on average ({source.lengths}), at most {lengths.limit}",
            "advice": " ".join(found.advice) or "none",
        }
    )
    rows = [("as in the spec", found.given)] if found.given is not None else []
    rows += [("split", row) for row in found.splits]
    rows += [("max staleness", row) for row in found.staleness]
    rows += [("batch", row) for row in found.batches]
    rows += [(row.change, row) for row in found.sensitivity]
    print()
    show_table(COLUMNS, [_cells(name, row) for name, row in rows])


def _cells(name: str, row: SimulatedLayout) -> tuple[object, ...]:
    return (
        name, row.engines, row.trainer_ranks, row.max_staleness, row.groups_per_step,
        f"{row.trained_tokens_per_second:.0f}", f"{row.step_seconds:.1f}", f"{row.trainer_idle_frac:.0%}",
        f"{row.rollout_idle_frac:.0%}", f"{row.staleness_mean:.1f}",
    )  # fmt: skip
