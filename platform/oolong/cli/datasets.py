"""`oolong dataset …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from oolong.cli.exit_codes import ExitCode
from oolong.cli.mapping import with_mapping
from oolong.cli.output import (
    JsonOption,
    counting_progress,
    dataset_progress,
    notes,
    show_json,
    show_list,
    show_table,
)
from oolong.client import Client
from oolong.client.models import DatasetValidation
from oolong.contracts.run_spec import SpecError

app = typer.Typer(no_args_is_help=True, help="Datasets: immutable versions of prompts with answers.")

FileArgument = Annotated[
    Path,
    typer.Argument(
        exists=True,
        dir_okay=False,
        readable=True,
        help="JSON lines, .csv or .parquet; also compressed, .gz or .zst",
    ),
]


@app.command()
@with_mapping
def upload(
    file: FileArgument,
    mapping: dict[str, Any],
    name: Annotated[str, typer.Option(help="the dataset; a new version is added when it exists")],
    json: JsonOption = False,
) -> None:
    """Upload a file as the next version. The same content gives the version that has it already."""
    with Client() as client, dataset_progress(file.name, quiet=json) as progress:
        version = client.datasets.upload(file, name=name, mapping=mapping, **progress)
    if json:
        show_json(version)
        return
    print(version.id)
    splits = ", ".join(f"{split} {count}" for split, count in version.splits.items())
    notes.print(f"{version.ref}: {version.rows} rows ({splits})", markup=False)


@app.command()
@with_mapping
def validate(
    file: FileArgument,
    mapping: dict[str, Any],
    report: Annotated[Path | None, typer.Option(help="write every fault to this file, as JSON lines")] = None,
    json: JsonOption = False,
) -> None:
    """Check every row of a file against a mapping; exits 2 when one is wrong. No dataset is made."""
    with Client() as client, dataset_progress(file.name, quiet=json) as progress:
        found = client.datasets.validate(file, mapping=mapping, **progress)
        if report is not None:
            report.write_bytes(client.datasets.report(found.id))
    if json:
        show_json(found)
    else:
        for error in found.errors:
            print(_fault(error, file))
        if found.faults > len(found.errors):
            more = f"{found.faults - len(found.errors)}{' or more' if found.faults_cut else ''}"
            print(f"… and {more} faults; --report FILE writes all of them")
        _print_warnings(found)
        print(_summary(found))
    if not found.valid:
        raise typer.Exit(ExitCode.USAGE)


def _fault(error: SpecError, file: Path) -> str:
    """The message of a fault of a row says where it is; others are about the file or the mapping."""
    if error.pointer.startswith("/rows/"):
        return error.message
    return f"{file.name if error.pointer in ('/upload_id', '/rows') else error.pointer}: {error.message}"


def _print_warnings(found: DatasetValidation) -> None:
    for where, count in found.leaks.items():
        print(f"warning: {count} prompts are in two splits ({where})")
    if found.conflicts:
        print(f"warning: {found.conflicts} rows have the prompt of an earlier row and another answer:")
        for conflict in found.first_conflicts:
            print(f"  {conflict.row} differs from {conflict.earlier}")
        if found.conflicts > len(found.first_conflicts):
            print(f"  … and {found.conflicts - len(found.first_conflicts)} more")


def _summary(found: DatasetValidation) -> str:
    by_cell = {
        ";": ", cells separated by semicolons",
        "\t": ", cells separated by tabs",
        "|": ", cells separated by |",
    }
    return (
        f"{'valid' if found.valid else 'not valid'}, {found.rows} rows checked{by_cell.get(found.delimiter, '')}, "
        f"{found.faults or len(found.errors)} faults, {found.duplicates} duplicates, "
        f"{found.conflicts} conflicting answers"
    )


@app.command()
@with_mapping
def preview(
    file: FileArgument,
    mapping: dict[str, Any],
    limit: Annotated[int, typer.Option(min=1, max=20)] = 5,
    json: JsonOption = False,
) -> None:
    """Columns of a file, and its first rows as the model would see them."""
    with Client() as client, dataset_progress(file.name, quiet=json) as progress:
        found = client.datasets.validate(file, mapping=mapping, stop_after=limit, **progress)
    if json:
        show_json(found)
        return
    show_table(
        ("COLUMN", "TYPE", "MISSING"),
        ((column.name, column.type, column.missing) for column in found.columns),
    )
    for number, row in enumerate(found.rendered):
        print(f"\n--- row {number}, split {row.split}, answer {row.answer!r}")
        for message in row.messages:
            print(f"[{message.role}] {message.content}")
    for error in found.errors:
        notes.print(_fault(error, file), markup=False)


@app.command("import")
@with_mapping
def import_dataset(
    source: Annotated[
        str,
        typer.Argument(
            help="public https address of a file, or a folder laid out as on the Hugging Face hub"
        ),
    ],
    mapping: dict[str, Any],
    name: Annotated[str, typer.Option(help="the dataset; a new version is added when it exists")],
    config: Annotated[str, typer.Option(help="config_name, when the folder's README.md has several")] = "",
    secret: Annotated[
        str | None, typer.Option(help="project secret that goes along to the address as Authorization")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make the next version of what lies at an address, which the server fetches, or in a folder."""
    if not source.startswith("https://") and not Path(source).is_dir():
        raise TyperException(f"{source}: neither an https:// address nor a folder")
    with Client() as client, dataset_progress(Path(source).name, quiet=json) as progress:
        version = client.datasets.upload(
            source, name=name, mapping=mapping, config=config, secret=secret, **progress
        )
    if json:
        show_json(version)
        return
    print(version.id)
    splits = ", ".join(f"{split} {count}" for split, count in version.splits.items())
    notes.print(f"{version.ref}: {version.rows} rows ({splits})", markup=False)


@app.command()
def alias(
    name: Annotated[str, typer.Argument(help="name@alias, as sums@gold")],
    version: Annotated[
        str | None, typer.Argument(help="number, reference or id; shows it without one")
    ] = None,
    expected: Annotated[int | None, typer.Option(help="move it only if it means this number now")] = None,
    remove: Annotated[bool, typer.Option("--remove")] = False,
    json: JsonOption = False,
) -> None:
    """Let name@alias mean a version, show what it means, or remove it."""
    dataset, _, wanted = name.rpartition("@")
    if not dataset or (remove and version):
        raise TyperException(f"{name}: give name@alias, and a version or --remove")
    with Client() as client:
        if remove:
            client.datasets.delete_alias(dataset, wanted)
            return
        if version is None:
            shown = client.datasets.version(name)
            show_json(shown) if json else print(shown.ref)
            return
        made = client.datasets.set_alias(dataset, wanted, version, expected=expected)
    show_json(made) if json else print(made.ref)


@app.command()
def stats(
    version: Annotated[str, typer.Argument(help="name@3, name@latest, or an id")],
    model: Annotated[str, typer.Option(help="a stored base model, whose tokenizer counts")],
    over: Annotated[int | None, typer.Option(help="tokens: which share of the rows is longer")] = None,
    json: JsonOption = False,
) -> None:
    """Token lengths of a version by split, and what its columns hold."""
    with Client() as client, counting_progress(version, quiet=json) as counting:
        found = client.datasets.statistics(version, model=model, over=over, counting=counting)
    if json:
        show_json(found)
        return
    kinds = (("prompt", found.prompts), ("completion", found.completions))
    show_table(
        ("SPLIT", "TEXT", "ROWS", "MEAN", "P50", "P95", "P99", "MAX", *(("OVER",) if over is not None else ())),
        (
            (
                split, kind, one.rows, round(one.mean, 1), one.p50, one.p95, one.p99, one.largest,
                *((f"{one.share_over:.2%}",) if one.share_over is not None else ()),
            )
            for kind, splits in kinds
            for split, one in splits.items()
        ),
    )  # fmt: skip
    notes.print(
        f"{found.duplicates} duplicates, {found.conflicts} conflicting answers, "
        f"{found.without_completion} rows without a completion",
        markup=False,
    )
    show_table(
        ("COLUMN", "MISSING", "DISTINCT", "MIN", "MEDIAN", "P95", "MAX", "NUMBERS", "MOST FREQUENT"),
        (
            (
                column.name, column.missing, f"{'' if column.distinct_exact else '~'}{column.distinct}",
                column.shortest, column.median, column.p95, column.longest,
                f"{column.minimum:g} to {column.maximum:g}" if column.numeric else "",
                ", ".join(f"{one.value[:24]} ({one.rows})" for one in column.frequent[:3]),
            )
            for column in found.columns
        ),
    )  # fmt: skip


@app.command("list")
def list_datasets(json: JsonOption = False) -> None:
    """The project's datasets."""
    with Client() as client:
        found = list(client.datasets.list())
    show_list(
        found,
        ("ID", "NAME", "LATEST", "ROWS"),
        lambda dataset: (
            dataset.id,
            dataset.name,
            dataset.latest.ref if dataset.latest else None,
            dataset.latest.rows if dataset.latest else 0,
        ),
        json=json,
    )


@app.command()
def split(
    version: Annotated[str, typer.Argument(help="name@3, name@latest, or an id")],
    ratio: Annotated[
        list[str], typer.Option(help="name=share, once for each split: --ratio train=0.9 --ratio eval=0.1")
    ],
    seed: Annotated[int, typer.Option(help="the same seed gives the same splits")] = 0,
    stratify: Annotated[
        str | None, typer.Option(help="divide each answer, or each split, by the ratios")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Put the rows of a version into new splits, as a version of its own. The same prompt is never in two."""
    ratios = {}
    for item in ratio:
        name, _, share = item.partition("=")
        if not name or not share.replace(".", "", 1).isdecimal():
            raise TyperException(f"--ratio {item}: name=share, like eval=0.1")
        ratios[name] = float(share)
    with Client() as client:
        made = client.datasets.derive(version, ratios, seed=seed, stratify=stratify)
    if json:
        show_json(made)
        return
    print(made.ref)
    notes.print(", ".join(f"{name} {count}" for name, count in made.splits.items()), markup=False)


@app.command()
def merge(
    versions: Annotated[
        list[str], typer.Argument(help="name@3, name@latest, or ids, in the order of their rows")
    ],
    name: Annotated[str, typer.Option(help="the dataset; a new version is added when it exists")],
    json: JsonOption = False,
) -> None:
    """Put the rows of several versions into one. Rows without a source get their dataset's name as source."""
    with Client() as client:
        made = client.datasets.merge(name, versions)
    if json:
        show_json(made)
        return
    print(made.ref)
    counts = (
        f"{split}: {', '.join(f'{source} {rows}' for source, rows in sources.items())}"
        for split, sources in made.sources.items()
    )
    notes.print("; ".join(counts), markup=False)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help="name@1")],
    new: Annotated[str, typer.Argument(help="name@2")],
    json: JsonOption = False,
) -> None:
    """What changed from one version to another, by prompt."""
    with Client() as client:
        found = client.datasets.diff(old, new)
    if json:
        show_json(found)
        return
    print(
        f"{found.added} added, {found.removed} removed, {found.changed} changed, {found.unchanged} unchanged"
    )
