"""What can be made of, and said about, whole versions: derived splits, merged rows, and the difference between two."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Max

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.datasets import rows
from control_plane.assets.datasets.splits import derive_splits
from control_plane.assets.models import Dataset, DatasetVersion
from control_plane.assets.storage import store
from control_plane.core.api.errors import FieldError, unprocessable
from oolong.contracts.attempt import CanonicalRow

MOST_ROWS = 500_000  # read within a request
SHOWN = 20
RATIO_TOLERANCE = 0.01  # thirds, written with two digits


def derive_version(
    caller: Caller, parent: DatasetVersion, *, ratios: dict[str, float], seed: int, stratify: str | None
) -> tuple[DatasetVersion, bool]:
    """A new version with the parent's rows in splits of these ratios, or the version that has them already.

    422 when a split would be empty, or the version is too large to be read within a request.
    """
    _refuse_large(parent)
    if (
        len(ratios) < 2
        or len(ratios) > rows.MAX_SPLITS
        or any(not 0 < ratio <= 1 for ratio in ratios.values())
    ):
        message = f"give 2 to {rows.MAX_SPLITS} splits with ratios above 0 and at most 1"
        raise unprocessable("invalid", message, [FieldError("/ratios", "ratios", message)])
    if odd := [name for name in ratios if not name.strip() or len(name) > rows.MAX_SPLIT_NAME]:
        message = f"{odd[0][:80]!r} is no name of a split: 1 to {rows.MAX_SPLIT_NAME} characters"
        raise unprocessable("invalid", message, [FieldError("/ratios", "split_name", message)])
    total = sum(ratios.values())
    if abs(total - 1) > RATIO_TOLERANCE:
        message = f"the ratios add up to {total:g}; they are shares of the rows and add up to 1"
        raise unprocessable("invalid", message, [FieldError("/ratios", "ratios", message)])
    found = list(_rows(parent))
    strata = [row.split if stratify == "split" else row.answer for row in found] if stratify else None
    splits = derive_splits([_prompt(row) for row in found], ratios, seed=seed, strata=strata)
    counts = Counter(splits)
    if empty := [name for name in ratios if not counts[name]]:
        message = f"{len(found)} rows are too few: split {empty[0]!r} would be empty"
        raise unprocessable("invalid", message, [FieldError(f"/ratios/{empty[0]}", "empty_split", message)])
    derived = {"from": parent.ref, "ratios": ratios, "seed": seed, "stratify": stratify}
    moved = (msgspec.structs.replace(row, split=split) for row, split in zip(found, splits, strict=True))
    return _store(caller, parent.dataset, moved, mapping=parent.mapping, derived=derived)


def merge_versions(
    caller: Caller, dataset: Dataset, versions: list[DatasetVersion]
) -> tuple[DatasetVersion, bool]:
    """A new version with the rows of all of these, one after another, or the version that has them already.

    A row without a source gets the name of its dataset as source, so that a run can weight it. 422 when there are more
    rows than can be read within a request, more splits or sources than a version may have, or a dataset's name is no
    name of a source.
    """
    _refuse_large(*versions)
    for index, version in enumerate(versions):
        if version.has_answers != versions[0].has_answers:
            with_answers, without = (version, versions[0]) if version.has_answers else (versions[0], version)
            message = (
                f"the rows of {with_answers.ref} have answers and those of {without.ref} have none; upload the latter "
                "with an answer_column, or merge versions that are alike"
            )
            raise unprocessable("invalid", message, [FieldError(f"/versions/{index}", "no_answers", message)])
        unnamed = version.rows - sum(sum(rows.values()) for rows in version.sources.values())
        if unnamed and not rows.SOURCE_NAME.fullmatch(version.dataset.name):
            message = (
                f"{unnamed} rows of {version.ref} have no source, and {version.dataset.name!r} cannot be one: 1 to 60 "
                "letters, digits and . _ - /. Rename the dataset, or upload it with a source_column"
            )
            raise unprocessable(
                "invalid", message, [FieldError(f"/versions/{index}", "source_name", message)]
            )
    for what, names, most in (
        ("splits", {name for version in versions for name in version.splits}, rows.MAX_SPLITS),
        ("sources", {name for version in versions for name in _source_names(version)}, rows.MAX_SOURCES),
    ):
        if len(names) > most:
            message = f"the versions have {len(names)} different {what} together, at most {most} are possible"
            raise unprocessable("invalid", message, [FieldError("/versions", f"too_many_{what}", message)])
    merged = (
        msgspec.structs.replace(row, source=row.source or version.dataset.name)
        for version in versions
        for row in _rows(version)
    )
    derived = {"merged": [version.ref for version in versions]}
    return _store(caller, dataset, merged, mapping=versions[0].mapping, derived=derived)


def _source_names(version: DatasetVersion) -> set[str]:
    return {version.dataset.name} | {name for rows in version.sources.values() for name in rows}


def _store(
    caller: Caller,
    dataset: Dataset,
    found: Iterable[CanonicalRow],
    *,
    mapping: dict[str, Any],
    derived: dict[str, Any],
) -> tuple[DatasetVersion, bool]:
    """Number the rows and keep them as the dataset's next version, or return its version that has them already."""
    offsets: list[int] = []
    splits: Counter[str] = Counter()
    with_completion: Counter[str] = Counter()
    with_pair: Counter[str] = Counter()
    sources = rows.SourceCounts()
    with store.new_blob() as target:
        for number, row in enumerate(found):
            if number % rows.OFFSET_STRIDE == 0:
                offsets.append(target.tell())
            target.write(msgspec.json.encode(msgspec.structs.replace(row, row=number)) + b"\n")
            splits[row.split] += 1
            with_completion[row.split] += row.completion is not None
            with_pair[row.split] += row.chosen is not msgspec.UNSET
            sources.add(row)
    blob = target.blob
    with transaction.atomic():
        store.lock_blob(blob.sha256)
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        existing = DatasetVersion.objects.filter(dataset=dataset, sha256=blob.sha256).select_related(
            "dataset"
        )
        if (same := existing.first()) is not None:
            return same, False
        newest = dataset.versions.aggregate(newest=Max("number"))["newest"] or 0
        version = DatasetVersion.objects.create(
            dataset=dataset, number=newest + 1, sha256=blob.sha256, bytes=blob.bytes, rows=sum(splits.values()),
            splits=dict(splits), with_completion=dict(+with_completion), with_pair=dict(+with_pair),
            sources=sources.as_json(), mapping=mapping, offsets=offsets, created_by=caller.user, derived=derived,
        )  # fmt: skip
    return version, True


def diff(old: DatasetVersion, new: DatasetVersion) -> dict[str, Any]:
    """Rows by prompt: added, removed, and changed in answer, demonstration, pair or split; with the first of each.

    A prompt that is there several times is compared as the whole of its rows.
    """
    _refuse_large(old)
    _refuse_large(new)
    before, after = _by_prompt(old), _by_prompt(new)
    added = [key for key in after if key not in before]
    removed = [key for key in before if key not in after]
    changed = [key for key in after if key in before and before[key][1] != after[key][1]]
    return {
        "from": old.ref,
        "to": new.ref,
        "identical": old.sha256 == new.sha256,
        "added": len(added),
        "removed": len(removed),
        "changed": len(changed),
        "unchanged": len(after) - len(added) - len(changed),
        "added_rows": [after[key][0] for key in added[:SHOWN]],
        "removed_rows": [before[key][0] for key in removed[:SHOWN]],
        "changed_rows": [
            {"from": before[key][0], "to": after[key][0]} for key in changed[:SHOWN]
        ],
        "splits": {
            name: {"from": old.splits.get(name, 0), "to": new.splits.get(name, 0)}
            for name in sorted({*old.splits, *new.splits})
        },
    }  # fmt: skip


def find_leakage(version: DatasetVersion) -> dict[str, int]:
    """Prompts that are in two splits: "eval, train" → how many. Empty is what one wants."""
    _refuse_large(version)
    places: defaultdict[bytes, set[str]] = defaultdict(set)
    for row in _rows(version):
        places[_prompt(row)].add(row.split)
    return dict(Counter(", ".join(sorted(found)) for found in places.values() if len(found) > 1))


def search(
    version: DatasetVersion, text: str, *, split: str, after: int, limit: int
) -> Iterator[dict[str, Any]]:
    """Rows behind `after` that hold the text in a message, the answer or a completion; case is ignored."""
    wanted = text.casefold()
    left = limit
    for row in _rows(version):
        if row.row <= after or (split and row.split != split):
            continue
        pair = [one for one in (row.chosen, row.rejected) if one is not msgspec.UNSET]
        texts = [message["content"] for messages in (row.messages, *pair) for message in messages]
        texts += [row.answer, row.completion or ""]
        if any(wanted in found.casefold() for found in texts):
            yield msgspec.to_builtins(row)
            left -= 1
            if not left:
                return


def _rows(version: DatasetVersion) -> Iterator[CanonicalRow]:
    with store.open_blob(version.sha256) as file:
        for line in file:
            yield msgspec.json.decode(line, type=CanonicalRow)


def _by_prompt(
    version: DatasetVersion,
) -> dict[bytes, tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """Of each prompt its first row, and what its rows say, in an order of its own."""
    found: dict[bytes, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {}
    for row in _rows(version):
        said = found.setdefault(_prompt(row), (msgspec.to_builtins(row), []))[1]
        said.append((row.split, row.answer, row.completion, row.chosen, row.rejected))
    for _, said in found.values():
        said.sort(key=repr)
    return found


def _prompt(row: CanonicalRow) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(row.messages), digest_size=16).digest()


def _refuse_large(*versions: DatasetVersion) -> None:
    total = sum(version.rows for version in versions)
    if total > MOST_ROWS:
        named = " and ".join(version.ref for version in versions)
        raise unprocessable("too_many_rows", f"{named}: {total} rows; this is done for at most {MOST_ROWS}")
