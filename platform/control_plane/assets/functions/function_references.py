"""What names a function: runs by their rows, and specs that are saved as JSON.

The models belong to higher layers, so they are named here and never imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from django.apps import apps
from django.db.models import Q

from control_plane.assets.models import Function

SHOWN = 5  # of each kind in a refusal
FIELDS = (
    "reward__function",
    "workflow__function",
    "algorithm__loss_function",
    "evaluation__reward__function",
)


@dataclass(frozen=True)
class SavedSpec:
    model: str  # app label and model
    noun: str
    name: str  # the column that people know it by
    project: str  # the path to its project
    spec: str = "spec"
    only: Q = field(default_factory=Q)


SAVED_SPECS = (
    SavedSpec("runs.Run", "draft", "id", "project", only=Q(status="DRAFT")),
    SavedSpec("checkpoints.AliasGate", "promotion gate", "alias", "project"),
    SavedSpec("experiments.Sweep", "sweep", "id", "project"),
    SavedSpec("experiments.RunTemplateVersion", "template", "template__name", "template__project"),
    SavedSpec("experiments.RunTemplateVersion", "team template", "template__name", "template__team__projects",
             only=Q(template__project=None)),
)  # fmt: skip


def references_to(function: Function) -> list[str]:
    """What refers to the function, in words: "runs run_1, run_2 and 3 more". Empty when it can be deleted."""
    runs = apps.get_model("runs.Run")._default_manager.filter(functions__function=function).distinct()
    found = [
        _words("run", [str(run) for run in runs.order_by("-created_at", "-pk").values_list("pk", flat=True)])
    ]
    ids = list(function.versions.values_list("pk", flat=True))
    for saved in SAVED_SPECS:
        rows = apps.get_model(saved.model)._default_manager.filter(
            saved.only, _names(function, ids, saved.spec)
        )
        names = rows.filter(**{saved.project: function.project_id}).values_list(saved.name, flat=True)
        found.append(_words(saved.noun, sorted({str(name) for name in names})))
    return [words for words in found if words]


def _names(function: Function, ids: list[str], spec: str) -> Q:
    either = Q()
    for name in FIELDS:
        path = f"{spec}__{name}"
        either |= Q(**{f"{path}__startswith": f"{function.name}@"}) | Q(
            **{f"{path}__in": [function.name, *ids]}
        )
    return either


def _words(noun: str, names: list[str]) -> str:
    if not names:
        return ""
    more = len(names) - SHOWN
    listed = f"{', '.join(names[:SHOWN])}{f' and {more} more' if more > 0 else ''}"
    return f"{noun if len(names) == 1 else noun + 's'} {listed}"
