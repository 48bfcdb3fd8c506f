"""The words of `plain_words.toml` do not come back. What still stands is counted in `plain_words_left.json`.

The counts may only fall. After removing some words, lower them:

    OOLONG_LOWER_WORD_COUNTS=1 .venv/bin/python -m pytest tests/unit/test_plain_words.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads((HERE / "plain_words.toml").read_text())
LEFT_FILE = HERE / "plain_words_left.json"
SUFFIXES = {".py", ".md", ".ts", ".tsx", ".yaml", ".yml", ".toml", ".sh", ".html"}
# The words themselves, and what is generated from other files.
SKIPPED = re.compile(
    r"tests/unit/(test_)?plain_words|webui/src/api/schema\.d\.ts|docs/reference/(access|cli|lint|metrics|run-spec|sdk)\.md"
)
DEFINITION = re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class Use:
    word: str
    instead: str
    file: str
    line: int  # 0: the file's own name

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r}; write {self.instead}"


def area_of(file: str) -> str:
    """Whose words they are: `platform/control_plane/runs`, `gpu_agents/agent`, `docs`."""
    folders = file.split("/")[:-1]
    depth = {"platform": 3, "gpu_agents": 2, "trainers": 2, "tests": 2}.get(folders[0], 1) if folders else 0
    return "/".join(folders[:depth]) or "."


def uses_in(file: str, text: str) -> Iterator[Use]:
    lowered = text.lower()
    for kind, pattern in (("spelling", "{}"), ("prose", r"\b{}\b")):
        for word, instead in WORDS[kind].items():
            if word in lowered:
                for match in re.finditer(pattern.format(re.escape(word)), lowered):
                    yield Use(word, instead, file, lowered.count("\n", 0, match.start()) + 1)
    if not file.endswith(".py"):
        return
    names = [(Path(file).stem, 0)] + [
        (match[1], text.count("\n", 0, match.start(1)) + 1) for match in DEFINITION.finditer(text)
    ]
    for name, line in names:
        for part in {part.lower() for part in PART.findall(name)}:
            if part in WORDS["names"]:
                yield Use(part, WORDS["names"][part], file, line)


def uses() -> list[Use]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    # A generated file repeats the words of its source.
    files = [name for name in listed.stdout.split("\0") if Path(name).suffix in SUFFIXES]
    files = [name for name in files if Path(name).name != "generated.py"]
    return [
        use
        for file in files
        if not SKIPPED.match(file) and (ROOT / file).is_file()
        for use in uses_in(file, (ROOT / file).read_text())
    ]


def test_no_new_use_of_a_listed_word() -> None:
    by_place: defaultdict[tuple[str, str], list[Use]] = defaultdict(list)
    for use in uses():
        by_place[area_of(use.file), use.word].append(use)
    allowed = Counter(
        {
            (area, word): count
            for area, words in json.loads(LEFT_FILE.read_text()).items()
            for word, count in words.items()
        }
    )
    added = {place: found for place, found in by_place.items() if len(found) > allowed[place]}
    report = [
        f"{area} may use {word!r} {allowed[area, word]} times and uses it {len(found)} times:\n  "
        + "\n  ".join(map(str, found))
        for (area, word), found in added.items()
    ]
    assert not added, "new uses of words that this project does not use\n" + "\n".join(report)
    left = {place: len(found) for place, found in by_place.items()}
    if os.environ.get("OOLONG_LOWER_WORD_COUNTS"):
        _write(left)
        return
    fallen = {place: count for place, count in allowed.items() if left.get(place, 0) < count}
    assert not fallen, (
        f"fewer uses than {LEFT_FILE.name} allows; lower it (see the top of this file): {fallen}"
    )


def test_words_are_found_in_names_and_prose() -> None:
    text = '"""Runs anew."""\n\n\nclass VerdictOfRuns:\n    def _fate_of(self, behaviour: int) -> None: ...\n'
    found = {(use.word, use.line) for use in uses_in("platform/oolong/cli/doorkeeper.py", text)}
    assert found == {("anew", 1), ("verdict", 4), ("fate", 5), ("behaviour", 5), ("doorkeeper", 0)}


def _write(left: Mapping[tuple[str, str], int]) -> None:
    areas: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (area, word), count in sorted(left.items()):
        areas[area][word] = count
    LEFT_FILE.write_text(json.dumps(areas, indent=1) + "\n")
