"""A Hugging Face dataset directory, as a tar: which of its files are rows, and of which split.

As the hub reads it: `configs` in the front matter of README.md name `data_files`; without them the splits are in the
names, as in `data/train-00000-of-00002.parquet`. Nothing of a directory is ever executed.
"""

from __future__ import annotations

import re
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from control_plane.assets.background.dataset_ingest.job import LIMITS

MOST_FILES = 10_000
MOST_BYTES = LIMITS["decoded_bytes"]
FRONT_MATTER_BYTES = 64 * 1024
MOST_PATTERNS, MOST_CHARACTERS = 1_000, 500  # of data_files, and of each of them
ROWS = (".jsonl", ".json", ".ndjson", ".csv", ".parquet")
WORDS = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}  # fmt: skip
_SHARD = re.compile(r"(?P<stem>.*?)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>\..+)")


class RepositoryRefused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class DataFile:
    name: str
    split: str


def unpack(archive: Path, folder: Path) -> list[str]:
    """README.md and the files of rows, below `folder`; their names. Anything else in the archive is passed over."""
    found: list[str] = []
    written = 0
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                parts = [part for part in PurePosixPath(member.name).parts if part != "."]
                if (
                    member.name.startswith("/")
                    or ".." in parts
                    or "\\" in member.name
                    or "\x00" in member.name
                ):
                    raise RepositoryRefused(
                        "unsafe_name", f"the name {member.name!r} leaves the archive's folder"
                    )
                if member.sparse is not None:  # its holes are written as zeros that the archive does not have
                    raise RepositoryRefused(
                        "sparse", f"{member.name!r} is a sparse file; pack it without --sparse"
                    )
                name = "/".join(parts)
                if not member.isreg() or not (is_rows(name) or name.lower().endswith("readme.md")):
                    continue
                too_large = RepositoryRefused(
                    "too_large", f"more than {MOST_FILES} files or {MOST_BYTES} bytes of rows"
                )
                if len(found) >= MOST_FILES or written + member.size > MOST_BYTES:
                    raise too_large
                source = tar.extractfile(member)
                assert source is not None  # it is a regular file
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    while chunk := source.read(1024 * 1024):
                        written += len(chunk)
                        if written > MOST_BYTES:
                            raise too_large
                        file.write(chunk)
                found.append(name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise RepositoryRefused("not_an_archive", f"not a readable tar archive: {error}") from error
    return found


def is_rows(name: str) -> bool:
    path = PurePosixPath(name)
    if any(part.startswith((".", "__")) for part in path.parts):
        return False
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in ROWS


def root_of(names: Sequence[str]) -> str:
    """The single folder that everything is in, with a slash; "" when README.md or rows lie at the top."""
    tops = {name.partition("/")[0] if "/" in name else "" for name in names}
    only = next(iter(tops)) if len(tops) == 1 else ""
    readme = any(name.lower() == f"{only}/readme.md" for name in names)
    return f"{only}/" if only and (readme or only not in ("data", *WORDS)) else ""


def plan(names: Iterable[str], readme: str, config: str = "") -> list[DataFile]:
    """The files of rows in the order in which they are read. Raises RepositoryRefused when that is not clear."""
    rows = sorted(name for name in names if is_rows(name))
    if not rows:
        raise RepositoryRefused("no_rows", f"the directory has no file of rows ({', '.join(ROWS)})")
    configs = _configs(readme)
    chosen = _chosen(configs, config)
    files = _named(rows, chosen["data_files"]) if chosen.get("data_files") else _by_name(rows, chosen)
    _check_shards(file.name for file in files)
    return files


def _configs(readme: str) -> list[dict[str, Any]]:
    if not readme.startswith("---"):
        return []
    front = readme[3:].partition("\n---")[0]
    if len(front) > FRONT_MATTER_BYTES:
        raise RepositoryRefused(
            "readme", f"the front matter of README.md has more than {FRONT_MATTER_BYTES} bytes"
        )
    try:
        document = yaml.safe_load(front)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise RepositoryRefused("readme", f"the front matter of README.md is not YAML: {error}") from error
    found = document.get("configs") if isinstance(document, dict) else None
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise RepositoryRefused(
            "readme", "configs in README.md must be a list of objects with config_name and data_files"
        )
    return found


def _chosen(configs: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    named = {str(item.get("config_name", "default")): item for item in configs}
    if wanted:
        if wanted not in named:
            raise RepositoryRefused(
                "no_such_config",
                f"there is no config {wanted!r}; README.md has {', '.join(sorted(named)) or 'none'}",
            )
        return named[wanted]
    marked = [item for item in configs if item.get("default") is True]
    if len(named) <= 1 or marked or "default" in named:
        return (marked or [named.get("default") or next(iter(named.values()), {})])[0]
    raise RepositoryRefused(
        "which_config", f"README.md has the configs {', '.join(sorted(named))}; say which one: config"
    )


def _named(rows: list[str], data_files: Any) -> list[DataFile]:
    """By `data_files`: a pattern, a list of them, or splits with their patterns."""
    if isinstance(data_files, dict):
        pairs = [
            (str(split), pattern) for split, patterns in data_files.items() for pattern in _list(patterns)
        ]
    else:
        pairs = []
        for item in _list(data_files):
            if isinstance(item, dict):
                pairs += [(str(item.get("split", "train")), path) for path in _list(item.get("path", []))]
            else:
                pairs.append(("train", item))
    if len(pairs) > MOST_PATTERNS:
        raise RepositoryRefused("readme", f"data_files in README.md has more than {MOST_PATTERNS} patterns")
    found: dict[str, DataFile] = {}
    for split, pattern in pairs:
        if not isinstance(pattern, str) or len(pattern) > MOST_CHARACTERS:
            raise RepositoryRefused(
                "readme",
                f"data_files in README.md: a pattern must be text of at most {MOST_CHARACTERS} characters",
            )
        matching = [name for name in rows if _matches(pattern, name)]
        if not matching:
            raise RepositoryRefused(
                "missing_file",
                f"README.md names {pattern!r} for split {split!r}; there is no such file of rows",
            )
        for name in matching:
            if found.setdefault(name, DataFile(name, split)).split != split:
                raise RepositoryRefused("two_splits", f"README.md puts {name} into two splits")
    return list(found.values())


def _by_name(rows: list[str], config: dict[str, Any]) -> list[DataFile]:
    folder = str(config.get("data_dir", "")).strip("./")
    inside = [name for name in rows if not folder or name.startswith(f"{folder}/")]
    if not inside:
        raise RepositoryRefused("missing_file", f"README.md names data_dir {folder!r}, which has no rows")
    splits = {name: _split_in(name.removeprefix(f"{folder}/")) for name in inside}
    if not any(splits.values()):
        return [DataFile(name, "train") for name in inside]
    if nameless := [name for name, split in splits.items() if not split]:
        raise RepositoryRefused(
            "no_split",
            f"the name of {nameless[0]} says no split, those of other files do; say data_files in README.md",
        )
    return [DataFile(name, split) for name, split in splits.items()]


def _split_in(name: str) -> str:
    """By the file's own words first, then by its folders'; of a shard any name counts."""
    *folders, file = name.split("/")
    if shard := _SHARD.fullmatch(file):
        stem = shard["stem"]
        return WORDS.get(stem, stem)
    for part in (file.partition(".")[0], *reversed(folders)):
        for word in re.split(r"[._\-\s]+|(?<=[a-z])(?=\d)", part.lower()):
            if word in WORDS:
                return WORDS[word]
    return ""


def _check_shards(names: Iterable[str]) -> None:
    there: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for name in names:
        if shard := _SHARD.fullmatch(name):
            there[f"{shard['stem']}-*{shard['rest']}", int(shard["count"])].add(int(shard["number"]))
    for (stem, count), numbers in there.items():
        if missing := sorted(set(range(count)) - numbers):
            raise RepositoryRefused(
                "missing_file",
                f"of {stem} {len(missing)} of {count} files are missing, first number {missing[0]:05d}",
            )


def _matches(pattern: str, name: str) -> bool:
    """`*` and `?` within a folder, `**` across folders. All ways are gone at once: no pattern makes it go back."""
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", re.sub(r"(\*\*/)+", "**/", pattern.removeprefix("./")))
    ends = {0}  # of what the pieces so far match, as places in the name
    for piece in filter(None, pieces):
        ends = set(_ends(piece, name, ends))
        if not ends:
            return False
    return len(name) in ends


def _ends(piece: str, name: str, starts: set[int]) -> Iterator[int]:
    if piece == "**":
        yield from range(min(starts), len(name) + 1)
    elif piece == "**/":
        yield from starts
        yield from (place + 1 for place in range(min(starts), len(name)) if name[place] == "/")
    elif piece == "*":
        inside = False
        for place in range(min(starts), len(name) + 1):
            inside = place in starts or (inside and name[place - 1] != "/")
            if inside:
                yield place
    elif piece == "?":
        yield from (place + 1 for place in starts if name[place : place + 1] not in ("", "/"))
    else:
        yield from (place + len(piece) for place in starts if name.startswith(piece, place))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
