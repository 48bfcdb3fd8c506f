"""`oolong dataset …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from oolong.cli.exit_codes import ExitCode
from oolong.cli.output import JsonOption, byte_progress, notes, show_json, show_table
from oolong.client import Client

VALIDATED_ROWS = 200  # as many as the preview looks at

app = typer.Typer(no_args_is_help=True, help="Datasets: immutable versions of prompts with answers.")

FileArgument = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="JSONL, CSV or Parquet file")
]
PromptOption = Annotated[str, typer.Option("--prompt-column", help="column that holds the prompt")]
AnswerOption = Annotated[str, typer.Option("--answer-column", help="column that the reward compares with")]
CompletionOption = Annotated[str | None, typer.Option("--completion-column", help="demonstrations, for sft")]
SplitColumnOption = Annotated[
    str | None, typer.Option("--split-column", help="column that names the row's split")
]
DefaultSplitOption = Annotated[str, typer.Option("--default-split", help="split of rows without one")]
TemplateOption = Annotated[
    str,
    typer.Option(
        "--template", help="prompt text: {prompt} is the prompt column, {name} another one, {{ a brace"
    ),
]
SystemOption = Annotated[str, typer.Option("--system", help="system message")]


@app.command()
def upload(
    file: FileArgument,
    name: Annotated[str, typer.Option(help="the dataset; a new version is added when it exists")],
    prompt_column: PromptOption = "prompt",
    answer_column: AnswerOption = "answer",
    completion_column: CompletionOption = None,
    split_column: SplitColumnOption = None,
    default_split: DefaultSplitOption = "train",
    template: TemplateOption = "{prompt}",
    system: SystemOption = "",
    json: JsonOption = False,
) -> None:
    """Upload a file as the next version. The same content gives the version that has it already."""
    mapping = mapping_of(
        prompt_column, answer_column, completion_column, split_column, default_split, template, system
    )
    with Client() as client, byte_progress(file.name) as progress:
        version = client.datasets.upload(file, name=name, mapping=mapping, progress=progress)
    if json:
        show_json(version)
        return
    print(version.id)
    splits = ", ".join(f"{split} {count}" for split, count in version.splits.items())
    notes.print(f"{version.ref}: {version.rows} rows ({splits})", markup=False)


@app.command()
def validate(
    file: FileArgument,
    prompt_column: PromptOption = "prompt",
    answer_column: AnswerOption = "answer",
    completion_column: CompletionOption = None,
    split_column: SplitColumnOption = None,
    default_split: DefaultSplitOption = "train",
    template: TemplateOption = "{prompt}",
    system: SystemOption = "",
    json: JsonOption = False,
) -> None:
    """Check the first 200 rows of a file against a mapping; exits 2 when one is wrong. No dataset is made.

    All rows are checked by `upload`, which stores nothing when one is wrong.
    """
    mapping = mapping_of(
        prompt_column, answer_column, completion_column, split_column, default_split, template, system
    )
    with Client() as client, byte_progress(file.name) as progress:
        preview = client.datasets.preview(file, mapping=mapping, limit=VALIDATED_ROWS, progress=progress)
    if json:
        show_json(
            {
                "valid": not preview.errors,
                "rows_checked": len(preview.rows),
                "errors": [error.model_dump() for error in preview.errors],
            }
        )
    else:
        for error in preview.errors:
            print(f"{error.pointer or '/'}: {error.message}")
        print(f"{'valid' if not preview.errors else 'not valid'}, {len(preview.rows)} rows checked")
    if preview.errors:
        raise typer.Exit(ExitCode.USAGE)


@app.command()
def preview(
    file: FileArgument,
    prompt_column: PromptOption = "prompt",
    answer_column: AnswerOption = "answer",
    completion_column: CompletionOption = None,
    split_column: SplitColumnOption = None,
    default_split: DefaultSplitOption = "train",
    template: TemplateOption = "{prompt}",
    system: SystemOption = "",
    limit: Annotated[int, typer.Option(min=1, max=100)] = 5,
    json: JsonOption = False,
) -> None:
    """Columns of a file, and its first rows as the model would see them."""
    mapping = mapping_of(
        prompt_column, answer_column, completion_column, split_column, default_split, template, system
    )
    with Client() as client, byte_progress(file.name) as progress:
        found = client.datasets.preview(file, mapping=mapping, limit=limit, progress=progress)
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
            print(f"[{message['role']}] {message['content']}")
    for error in found.errors:
        notes.print(f"{error.pointer or '/'}: {error.message}", markup=False)


@app.command("list")
def list_datasets(json: JsonOption = False) -> None:
    """The project's datasets."""
    with Client() as client:
        found = list(client.datasets.list())
    if json:
        show_json(found)
        return
    show_table(
        ("ID", "NAME", "LATEST", "ROWS"),
        (
            (
                dataset.id,
                dataset.name,
                dataset.latest.ref if dataset.latest else None,
                dataset.latest.rows if dataset.latest else 0,
            )
            for dataset in found
        ),
    )


def mapping_of(
    prompt_column: str,
    answer_column: str,
    completion_column: str | None,
    split_column: str | None,
    default_split: str,
    template: str,
    system: str,
) -> dict[str, Any]:
    mapping: dict[str, Any] = {
        "prompt_column": prompt_column,
        "answer_column": answer_column,
        "default_split": default_split,
        "template": template,
        "system": system,
    }
    if completion_column:
        mapping["completion_column"] = completion_column
    if split_column:
        mapping["split_column"] = split_column
    return mapping
