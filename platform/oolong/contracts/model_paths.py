"""Directories of models that nodes offer, and paths below them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

MOST_ROOTS = 50
MOST_LETTERS = 1000


def faults_of_path(path: str) -> str:
    """Why it is no plain absolute path, or ""."""
    if not path.startswith("/") or ".." in path.split("/") or "\x00" in path:
        return "an absolute path on the nodes, without '..'"
    return f"at most {MOST_LETTERS} characters" if len(path) > MOST_LETTERS else ""


def root_of(path: str, roots: Iterable[str]) -> str | None:
    """The innermost of these directories that has the path, which may be the directory itself. None: no one has it."""
    having = [root for root in roots if PurePosixPath(path).is_relative_to(root)]
    return max(having, key=len, default=None)
