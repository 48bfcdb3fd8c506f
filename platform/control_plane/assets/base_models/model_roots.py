"""Which directories of models the nodes offer. Nodes are another app's; whoever knows them sets `source` and `ring`
at start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from control_plane.accounts.models import Project


def _none(project: Project) -> Iterable[str]:
    return ()


source: Callable[[Project], Iterable[str]] = _none


def _nobody(path: str) -> None:
    return


ring: Callable[[str], None] = _nobody  # the nodes that offer this path hear of its check at once


def offered(project: Project) -> set[str]:
    """By nodes that take runs of this project."""
    return set(source(project))
