"""`oolong run metrics | trajectories | trajectory`: what a run measured and sampled."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, notes, show_fields, show_json, show_list, show_table
from oolong.cli.run_output import RunArgument
from oolong.client import Client

app = typer.Typer()

POINTS_AT_ONCE = 20_000
COLUMNS = ("name", "axis", "source", "attempt", "x", "value", "at")
Row = tuple[str, str, str, int, float, float | None, float]


@app.command()
def metrics(
    run: RunArgument,
    names: Annotated[list[str] | None, typer.Argument(help="reward/mean ...; none: what there is")] = None,
    axis: Annotated[str, typer.Option(help="step or time")] = "step",
    resolution: Annotated[
        int, typer.Option(min=1, max=20_000, help="a longer series comes in at most so many buckets")
    ] = 50,
    first: Annotated[int | None, typer.Option("--from", help="first step")] = None,
    last: Annotated[int | None, typer.Option("--to", help="last step")] = None,
    join: Annotated[
        str | None, typer.Option(help="attempts: one line of them; lineage: with the runs before it, too")
    ] = None,
    x_axis: Annotated[str | None, typer.Option(help="a column more: version, tokens or wall")] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="write every single point to this .csv or .parquet; - is CSV on stdout"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Series of a run, or the names of all. A bucket shows its mean, and its exact extremes."""
    with Client() as client:
        if export is not None:
            _export(client, run, names or [], axis=axis, to=export)
            return
        if not names:
            known = client.runs.metric_names(run)
            if json:
                show_json(known)
                return
            rows = ((one.name, one.unit, one.axis, one.last_x, ",".join(one.sources)) for one in known)
            show_table(("NAME", "UNIT", "AXIS", "LAST", "SOURCES"), rows)
            return
        found = client.runs.metrics(
            run,
            names,
            axis=axis,
            max_points=resolution,
            from_x=first,
            to_x=last,
            join=join,
            x_axis=x_axis,
        )
    if json:
        show_json(found)
        return
    more = (x_axis.upper(),) if x_axis else ()
    show_table(
        ("NAME", "SOURCE", "ATTEMPT", "X", *more, "VALUE", "MIN", "MAX", "POINTS"),
        (
            (
                series.name, series.source, series.attempt, int(x),
                *((series.x_axis[n] if series.x_axis else None,) if x_axis else ()),
                series.value[n],
                series.min[n] if series.min else series.value[n],
                series.max[n] if series.max else series.value[n],
                series.count[n] if series.count else 1,
            )
            for series in found.series
            for n, x in enumerate(series.x)
        ),
    )  # fmt: skip


@app.command()
def trajectories(
    run: RunArgument,
    step_from: Annotated[int | None, typer.Option(min=0)] = None,
    step_to: Annotated[int | None, typer.Option(min=0)] = None,
    reward_min: Annotated[float | None, typer.Option()] = None,
    reward_max: Annotated[float | None, typer.Option()] = None,
    version: Annotated[
        int | None, typer.Option(min=0, help="a policy version within its oldest and newest")
    ] = None,
    span_min: Annotated[
        int | None, typer.Option(min=0, help="versions from its oldest token to its newest, at least")
    ] = None,
    row: Annotated[int | None, typer.Option(min=0, help="of the dataset")] = None,
    because: Annotated[
        str | None, typer.Option(help="group, highest_reward, lowest_reward, longest or widest_span")
    ] = None,
    finish_reason: Annotated[str | None, typer.Option(help="stop, length or abort")] = None,
    reward_result: Annotated[str | None, typer.Option(help="as the reward function named it")] = None,
    search: Annotated[str | None, typer.Option(help="text in the prompt or the completion")] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most this many, newest first")] = 20,
    json: JsonOption = False,
) -> None:
    """Sampled trajectories of a run."""
    with Client() as client:
        listed = client.runs.trajectories(
            run, step_from=step_from, step_to=step_to, reward_min=reward_min, reward_max=reward_max,
            version=version, span_min=span_min, row=row, because=because, finish_reason=finish_reason,
            reward_result=reward_result, text=search,
        )  # fmt: skip
        found = list(islice(listed, limit))
    show_list(
        found,
        ("ID", "STEP", "GROUP", "REWARD", "TOKENS", "VERSIONS", "WHY", "COMPLETION"),
        lambda one: (
            one.id, one.step, one.group_id, one.reward, one.tokens,
            f"{one.low_version}..{one.high_version}" if one.low_version is not None else None,
            ",".join(one.sample_reasons), " ".join(one.completion.split())[:60],
        ),
        json=json,
    )  # fmt: skip


@app.command()
def trajectory(
    run: RunArgument,
    trajectory_id: Annotated[int, typer.Argument(help="as `run trajectories` lists it")],
    json: JsonOption = False,
) -> None:
    """One sampled trajectory; with --json token by token."""
    with Client() as client:
        found = client.runs.trajectory(run, trajectory_id)
    if json:
        show_json(found)
        return
    show_fields(
        {
            "step": found.step, "group": found.group_id, "member": found.member, "row": found.row,
            "reward": found.reward, "score": found.score, "parts": found.reward_parts or None,
            "reward result": found.reward_result or None, "finished": found.finish_reason, "tokens": found.tokens,
            "versions": f"{found.low_version}..{found.high_version}", "timeline": found.timeline or None,
        }
    )  # fmt: skip
    sys.stdout.write(
        f"\n--- prompt\n{found.prompt}\n--- completion\n{found.completion}\n--- answer\n{found.answer}\n"
    )
    if found.reward_text:
        sys.stdout.write(f"--- judge\n{found.reward_text}\n")


def _export(client: Client, run: str, names: list[str], *, axis: str, to: Path) -> None:
    names = names or sorted({one.name for one in client.runs.metric_names(run) if one.axis == axis})
    rows = (row for name in names for row in _points(client, run, name, axis))
    if to.suffix == ".parquet":
        _write_parquet(rows, to)
    elif str(to) == "-":
        _write_csv(rows, sys.stdout)
    elif to.suffix == ".csv":
        with to.open("w", newline="") as file:
            _write_csv(rows, file)
    else:
        raise typer.BadParameter(f"{to}: the name ends in .csv or .parquet, or is -", param_hint="--export")
    if str(to) != "-":
        notes.print(f"wrote {to}", markup=False)


def _points(client: Client, run: str, name: str, axis: str) -> Iterator[Row]:
    """Every single point. A round ends where the first of the series that have more does."""
    after: int | None = None
    while True:
        found = client.runs.metrics(run, [name], axis=axis, after_x=after, limit=POINTS_AT_ONCE).series
        full = [int(series.x[-1]) for series in found if len(series.x) == POINTS_AT_ONCE]
        end = min(full, default=None)
        for series in found:
            for x, value, at in zip(series.x, series.value, series.at, strict=True):
                if end is None or x <= end:
                    yield (series.name, series.axis, series.source, series.attempt, x, value, at)
        if end is None:
            return
        after = end


def _write_csv(rows: Iterator[Row], file: object) -> None:
    writer = csv.writer(file)  # type: ignore[arg-type]
    writer.writerow(COLUMNS)
    # repr of a float is exact; an empty cell is a value that was not finite.
    writer.writerows(
        [*row[:4], int(row[4]), "" if row[5] is None else repr(row[5]), repr(row[6])] for row in rows
    )


def _write_parquet(rows: Iterator[Row], to: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise typer.BadParameter(
            "writing Parquet needs the package pyarrow; install it, or export .csv", param_hint="--export"
        ) from error
    kinds = (pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.float64())
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
    with pq.ParquetWriter(to, schema) as writer:
        while batch := list(islice(rows, 100_000)):
            columns = [
                pa.array([int(v) if i == 4 else v for v in column], type=kinds[i])
                for i, column in enumerate(zip(*batch, strict=True))
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
