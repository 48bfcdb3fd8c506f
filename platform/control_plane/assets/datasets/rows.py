"""Decoded rows of an uploaded file: checked one by one, mapped, rendered, and written as canonical rows.

Nothing of a file with a fault is kept. A fault says which line, which column, what was wrong and shows the value.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec

from control_plane.assets.datasets.cells import SAMPLE_CHARACTERS, RowFault, check_text, sample
from control_plane.assets.datasets.conversations import read_pair, read_prompt
from control_plane.core.api.field_error import FieldError
from oolong.contracts.attempt import CanonicalRow
from oolong.contracts.model_faults import pointer_part

OFFSET_STRIDE = 500
MAX_ROWS = 5_000_000
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_SPLITS = 20
MAX_SPLIT_NAME = 60  # characters
MAX_SOURCES = 50  # of all splits together
SOURCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,59}")
ERRORS_SHOWN = 50


class Target(Protocol):
    """Where canonical rows go."""

    def write(self, data: bytes, /) -> int: ...

    def tell(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Mapping:
    """How columns become prompts. `template` names columns in braces; `{prompt}` is the prompt column."""

    prompt_column: str
    answer_column: str | None = None  # only where there are pairs
    completion_column: str | None = None
    chosen_column: str | None = None
    rejected_column: str | None = None
    split_column: str | None = None
    source_column: str | None = None
    default_split: str = "train"
    template: str = "{prompt}"
    system: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class DecodedRow(NamedTuple):
    """One row of a file, as the decoder found it."""

    place: int  # the line of the file that it begins on; of a Parquet file the row, from 1
    data: bytes  # a JSON object, if nothing is wrong
    fault: RowFault | None = None  # why it could not be read


class SourceCounts:
    """Rows of each split by their source; rows without one are not counted."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, row: CanonicalRow) -> None:
        if row.source:
            self.names.add(row.source)
            self._counts[row.split][row.source] += 1

    def as_json(self) -> dict[str, dict[str, int]]:
        return {split: dict(counts) for split, counts in self._counts.items()}


@dataclass
class Written:
    rows: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    with_completion: Counter[str] = field(default_factory=Counter)
    with_pair: Counter[str] = field(default_factory=Counter)
    sources: SourceCounts = field(default_factory=SourceCounts)
    offsets: list[int] = field(default_factory=list)
    errors: list[FieldError] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)  # of each error: how its row begins
    places: list[int] = field(default_factory=list)  # of each error: DecodedRow.place


class TemplateFault(Exception):
    pass


def template_names(template: str) -> list[str]:
    """The columns that a template names. Raises TemplateFault for anything but plain `{column}` and `{{`, `}}`."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise TemplateFault(f"the template {sample(template)} is malformed: {error}") from error
    names = []
    for _, name, form, conversion in parsed:
        if name is None:
            continue
        if form or conversion or not name or name.isdecimal() or set(name) & set(".[]"):
            raise TemplateFault(
                f"the template has {{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}; "
                "only plain {column} is allowed, and {{ for a brace"
            )
        names.append(name)
    return names


def mapping_faults(mapping: Mapping) -> list[FieldError]:
    try:
        names = template_names(mapping.template)
    except TemplateFault as fault:
        return [FieldError("/mapping/template", "template", str(fault))]
    if not names:
        message = "the template names no column, so every prompt would be the same"
        return [FieldError("/mapping/template", "template", message)]
    if (mapping.chosen_column is None) != (mapping.rejected_column is None):
        absent, other = (
            ("chosen_column", mapping.rejected_column)
            if mapping.chosen_column is None
            else ("rejected_column", mapping.chosen_column)
        )
        message = f"the column {other!r} is one half of a pair; name the other half, or leave both out"
        return [FieldError(f"/mapping/{absent}", "half_pair", message)]
    if mapping.chosen_column is not None and mapping.chosen_column == mapping.rejected_column:
        message = f"chosen and rejected are both the column {mapping.chosen_column!r}; name two columns"
        return [FieldError("/mapping/rejected_column", "same_column", message)]
    if mapping.answer_column is None and mapping.chosen_column is None:
        message = (
            "name the column with the expected answer; only rows with a pair (chosen_column, rejected_column) "
            "need none"
        )
        return [FieldError("/mapping/answer_column", "required", message)]
    return []


def write_canonical(
    source: Iterable[DecodedRow],
    mapping: Mapping,
    target: Target,
    *,
    errors_kept: int = ERRORS_SHOWN,
    seen: Callable[[dict[str, Any], CanonicalRow], None] | None = None,
    mapping_at: Callable[[int], Mapping] | None = None,
    name_place: Callable[[int, int], str] | None = None,
) -> Written:
    """Stream `source` into canonical rows. With any error the caller must drop what was written.

    Stops after `errors_kept` errors. `seen` gets every good row, as it came and as it is kept. `mapping_at` gives the
    mapping of a row where rows of several files follow each other; `name_place(number, place)` says where a row
    is, as faults name it.
    """
    written = Written()
    name_place = name_place or (lambda _number, place: f"line {place}")
    for number, decoded in enumerate(source):
        try:
            if number >= MAX_ROWS:
                raise RowFault("", "too_many_rows", f"more than {MAX_ROWS} rows; split the file")
            if decoded.fault is not None:
                raise decoded.fault
            raw = read_row(decoded.data)
            row = canonical(raw, mapping_at(number) if mapping_at else mapping, number)
        except RowFault as fault:
            _note(written, fault_of_row(fault, number, name_place(number, decoded.place)), decoded)
            if len(written.errors) >= errors_kept or number >= MAX_ROWS:
                break
            continue
        if seen is not None:
            seen(raw, row)
        if written.errors:
            continue  # nothing of it will be kept; the rest is only checked
        if number % OFFSET_STRIDE == 0:
            written.offsets.append(target.tell())
        target.write(msgspec.json.encode(row) + b"\n")
        written.rows += 1
        written.splits[row.split] += 1
        if row.completion is not None:
            written.with_completion[row.split] += 1
        if row.chosen is not msgspec.UNSET:
            written.with_pair[row.split] += 1
        written.sources.add(row)
        if len(written.sources.names) > MAX_SOURCES:
            message = (
                f"more than {MAX_SOURCES} different sources; is {mapping.source_column!r} the source column?"
            )
            _note(written, FieldError("/mapping/source_column", "too_many_sources", message), decoded)
            break
        if len(written.splits) > MAX_SPLITS:
            message = (
                f"more than {MAX_SPLITS} different splits; is {mapping.split_column!r} the split column?"
            )
            _note(written, FieldError("/mapping/split_column", "too_many_splits", message), decoded)
            break
    if not written.rows and not written.errors:
        _note(written, FieldError("/rows", "empty", "the file has no rows"), DecodedRow(0, b""))
    return written


def fault_of_row(fault: RowFault, number: int, place: str) -> FieldError:
    """The pointer counts rows from 0, as JSON pointers do; the message names the place in the file."""
    pointer = f"/rows/{number}/{pointer_part(fault.column)}" if fault.column else f"/rows/{number}"
    return FieldError(pointer, fault.code, f"{place}: {fault}")


def _note(written: Written, error: FieldError, row: DecodedRow) -> None:
    written.errors.append(error)
    written.samples.append(row.data[: 2 * SAMPLE_CHARACTERS].decode("utf-8", "replace").strip())
    written.places.append(row.place)


def read_row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(
            line.decode("utf-8", "surrogatepass"), parse_constant=_refuse_constant, object_pairs_hook=_object
        )
    except (ValueError, _NotJson, RecursionError) as error:  # ValueError: also a number of too many digits
        # The decoder counts lines within the row; the caller knows which line of the file this is.
        why = (
            f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        )
        found = sample(line.decode("utf-8", "replace"))
        raise RowFault("", "not_json", f"not a JSON object: {why}; found {found}") from error
    if not isinstance(row, dict):
        raise RowFault("", "not_an_object", f"a row is a JSON object with columns; found {sample(row)}")
    return row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowFault(
            twice, "duplicate_key", f"the key {twice!r} is there {names.count(twice)} times; keep one of them"
        )
    return row


def presentable(value: Any, *, depth: int = 20, most: int | None = None) -> Any:
    """A raw value as it can be stored and shown: NUL and half characters replaced, infinities as null, what is
    nested deeper than `depth` left out, and texts and lists cut at `most`. Databases and JSON take nothing else."""
    match value:
        case str() if most is not None and len(value) > most:
            return presentable(value[:most]) + "…"
        case str():
            return (
                value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )
        case float() if not math.isfinite(value):
            return None
        case dict() | list() if not depth:
            return "…"
        case dict():
            return {
                presentable(name, most=most): presentable(item, depth=depth - 1, most=most)
                for name, item in islice(value.items(), most)
            }
        case list():
            return [presentable(item, depth=depth - 1, most=most) for item in value[:most]]
    return value


def canonical(row: dict[str, Any], mapping: Mapping, number: int) -> CanonicalRow:
    messages = _messages(row, mapping)
    answer = "" if mapping.answer_column is None else _text(row, mapping.answer_column, numbers=True)
    completion = None
    if mapping.completion_column is not None and row.get(mapping.completion_column) is not None:
        completion = _text(row, mapping.completion_column)
    pair = None
    if mapping.chosen_column is not None and mapping.rejected_column is not None:
        pair = read_pair(row, mapping.chosen_column, mapping.rejected_column, messages)
        if pair is None and mapping.answer_column is None:
            raise RowFault(
                mapping.chosen_column,
                "no_pair",
                f"columns {mapping.chosen_column!r} and {mapping.rejected_column!r} have no value, and there is no "
                f"answer column; the row has {', '.join(map(repr, row)) or 'none'}",
            )
    split = mapping.default_split
    if mapping.split_column is not None and row.get(mapping.split_column) is not None:
        split = _text(row, mapping.split_column)
        if len(split) > MAX_SPLIT_NAME:
            raise RowFault(
                mapping.split_column,
                "split_too_long",
                f"a split's name has at most {MAX_SPLIT_NAME} characters: {sample(split)}",
            )
    source = ""
    if mapping.source_column is not None and row.get(mapping.source_column) is not None:
        source = _text(row, mapping.source_column)
        if not SOURCE_NAME.fullmatch(source):
            raise RowFault(
                mapping.source_column,
                "source_name",
                "a source is named by 1 to 60 letters, digits and . _ - /, and begins with a letter or digit: "
                + sample(source),
            )
    return CanonicalRow(
        row=number,
        split=split,
        messages=messages,
        answer=answer,
        completion=completion,
        chosen=pair[0] if pair is not None else msgspec.UNSET,
        rejected=pair[1] if pair is not None else msgspec.UNSET,
        source=source,
    )


def _messages(row: dict[str, Any], mapping: Mapping) -> list[dict[str, str]]:
    """The prompt: a text in its template, or a conversation as it is."""
    prompt = row.get(mapping.prompt_column)
    if isinstance(prompt, list):
        if mapping.template != "{prompt}":
            raise RowFault(
                mapping.prompt_column,
                "wrong_type",
                f"column {mapping.prompt_column!r} holds messages, which no template can render; leave the template "
                f"{sample(mapping.template)} out",
            )
        return read_prompt(prompt, mapping.prompt_column, system=mapping.system)
    text = _text(row, mapping.prompt_column, numbers=True)
    values = {
        name: text if name == "prompt" else _text(row, name, numbers=True)
        for name in template_names(mapping.template)
    }
    messages = [{"role": "user", "content": mapping.template.format_map(values)}]
    if mapping.system:
        messages.insert(0, {"role": "system", "content": mapping.system})
    return messages


def _text(row: dict[str, Any], column: str, *, numbers: bool = False) -> str:
    if column not in row:
        raise RowFault(
            column,
            "missing_column",
            f"no column {column!r}; the row has {', '.join(map(repr, row)) or 'none'}",
        )
    value = row[column]
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise RowFault(
                column, "not_finite", f"column {column!r} holds a number that is too large for JSON"
            )
        value = json.dumps(value)
    return check_text(value, column, f"column {column!r}", wanted="text or a number" if numbers else "text")


class _NotJson(Exception):
    pass


def _refuse_constant(name: str) -> None:
    raise _NotJson(f"{name} is not JSON")
