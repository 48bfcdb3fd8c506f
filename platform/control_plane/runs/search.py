"""Filters and sorting of the run list, parsed from query parameters. Saved views store the same parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import (
    Case,
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    FloatField,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Extract, Greatest, Least
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter

from control_plane.assets.models import FunctionVersion
from control_plane.core.api.query_params import invalid_parameter
from control_plane.core.api.schema import RUN_KINDS, RUN_STATUSES
from control_plane.runs.attempt_status import CONDITIONS
from control_plane.runs.models import Run
from oolong.contracts.lifecycle import RunStatus

QueryParams = Mapping[str, Sequence[str]]  # parameter → values, as in a query string
MAX_VALUES = 20  # values of one parameter
MAX_LENGTH = 400
_METRIC = re.compile(r"^([A-Za-z0-9_./@-]{1,120})(>=|<=|>|<|=)(-?[0-9.eE+-]{1,40})$")
_LOOKUPS = {">=": "gte", "<=": "lte", ">": "gt", "<": "lt", "=": "exact"}


Column = Callable[[datetime], Any]  # an expression as of a time, without nulls


@dataclass(frozen=True)
class Sort:
    """A sort order by a column without nulls, so that a page can begin after any row."""

    column: Column
    read: Callable[[str], Any]  # parses its value from a cursor
    write: Callable[[Any], str]  # formats its value for a cursor


def _number(field: str) -> Column:
    lowest = Value(float("-inf"))
    return lambda as_of: Coalesce(F(field), lowest, output_field=FloatField())


def _moment(field: str) -> Column:
    return lambda as_of: Coalesce(F(field), Value(_EPOCH), output_field=DateTimeField())


def _duration(as_of: datetime) -> Any:
    """Seconds since the start without pauses; -1 before the start. The clock of a paused run stands still."""
    paused_at = Case(When(status=RunStatus.PAUSED, then=F("status_at")), output_field=DateTimeField())
    # A run that ends while a reader turns pages keeps the value that it had on the first page.
    end = Least(Value(as_of), Coalesce(F("ended_at"), paused_at, Value(as_of), output_field=DateTimeField()))
    elapsed = Extract(ExpressionWrapper(end - F("started_at"), output_field=DurationField()), "epoch")
    worked = Greatest(Cast(elapsed, FloatField()) - F("paused_seconds"), Value(0.0))
    return Case(When(started_at=None, then=Value(-1.0)), default=worked, output_field=FloatField())


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AS_DATETIME = (datetime.fromisoformat, datetime.isoformat)
# In descending order, runs without the value come last.
SORTS: dict[str, Sort] = {
    "name": Sort(lambda as_of: F("name"), str, str),
    "status": Sort(lambda as_of: F("status"), str, str),
    "train_step": Sort(lambda as_of: F("train_step"), int, str),
    "reward": Sort(_number("reward_mean"), float, repr),
    "staleness": Sort(_number("staleness_mean"), float, repr),
    "started": Sort(_moment("started_at"), *_AS_DATETIME),
    "ended": Sort(_moment("ended_at"), *_AS_DATETIME),
    "duration": Sort(_duration, float, repr),
}


@dataclass
class Search:
    filters: list[Q] = field(default_factory=list)
    metrics: list[tuple[str, str, float]] = field(default_factory=list)  # name, lookup, bound
    sort: str = ""  # a key of SORTS; empty: by creation
    descending: bool = True

    def apply(self, rows: QuerySet[Run]) -> QuerySet[Run]:
        for number, (name, lookup, bound) in enumerate(self.metrics):
            value = Cast(KeyTextTransform(name, "metrics"), FloatField())
            rows = rows.alias(**{f"m{number}": value}).filter(**{f"m{number}__{lookup}": bound})
        for condition in self.filters:
            rows = rows.filter(condition)
        return rows


def parse_search(params: QueryParams) -> Search:
    """Parse query parameters. 422 names the invalid parameter and value, and the valid ones."""
    search = Search()
    for name, values in params.items():
        if name not in _PARSERS:
            raise invalid_parameter(name, f"there is no filter {name!r}; there are {', '.join(_PARSERS)}")
        if len(values) > MAX_VALUES:
            raise invalid_parameter(name, f"{name} is given {len(values)} times; at most {MAX_VALUES}")
        for value in values:
            if not value.isprintable() or len(value) > MAX_LENGTH:
                raise invalid_parameter(
                    name, f"{name}={value[:40]!r} must be printable text of at most {MAX_LENGTH} characters"
                )
            if value:
                _PARSERS[name](search, value)
    return search


def _status(search: Search, value: str) -> None:
    search.filters.append(Q(status__in=_split_known("status", value.upper(), RUN_STATUSES)))


def _condition(search: Search, value: str) -> None:
    wanted = Q()
    for condition in _split_known("condition", value.upper(), list(CONDITIONS)):
        wanted |= Q(conditions__contains=[condition])
    search.filters.append(wanted)


def _kind(search: Search, value: str) -> None:
    search.filters.append(Q(kind__in=_split_known("kind", value, RUN_KINDS)))


def _dataset(search: Search, value: str) -> None:
    name, at, number = value.partition("@")
    if not at:
        search.filters.append(Q(dataset_version_id=value) | Q(dataset_version__dataset__name=value))
    elif number.isdecimal() and len(number) < 10:
        search.filters.append(Q(dataset_version__dataset__name=name, dataset_version__number=int(number)))
    else:
        raise invalid_parameter("dataset", f"dataset={value!r}: an id, name, or name@3")


def _function(search: Search, value: str) -> None:
    name, at, number = value.partition("@")
    versions = FunctionVersion.objects.filter(function__name=name)
    if at:
        if not (number.isdecimal() and len(number) < 10):
            raise invalid_parameter("function", f"function={value!r}: a name, or name@3")
        versions = versions.filter(number=int(number))
    search.filters.append(Q(pk__in=Run.objects.filter(functions__in=versions).values("pk")))


def _metric(search: Search, value: str) -> None:
    found = _METRIC.match(value)
    try:
        bound = float(found[3]) if found else None
    except ValueError:
        bound = None
    if found is None or bound is None:
        raise invalid_parameter(
            "metric", f"metric={value!r}: NAME, one of >= <= > < =, and a number: reward/mean>=0.5"
        )
    search.metrics.append((found[1], _LOOKUPS[found[2]], bound))


def _timestamp(lookup: str, name: str) -> Callable[[Search, str], None]:
    def read(search: Search, value: str) -> None:
        try:
            moment = parse_datetime(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise invalid_parameter(
                name, f"{name}={value!r}: a time with a time zone, such as 2026-01-31T12:00:00Z"
            )
        search.filters.append(Q(**{f"created_at__{lookup}": moment}))

    return read


def _sort(search: Search, value: str) -> None:
    column = value.removeprefix("-")
    if column not in ("created", *SORTS):
        raise invalid_parameter(
            "sort", f"sort={value!r}: one of created, {', '.join(SORTS)}; prefix - sorts descending"
        )
    search.sort, search.descending = "" if column == "created" else column, value.startswith("-")


def _simple(make: Callable[[str], Q]) -> Callable[[Search, str], None]:
    return lambda search, value: search.filters.append(make(value))


def _names_secret(name: str) -> Q:
    """For its jobs, or for the service that its reward or a part of it asks."""
    options: list[dict[str, object]] = [{"secret": name}, {"parts": [{"options": {"secret": name}}]}]
    rewards = [{"reward": {"options": one}} for one in options]
    found = Q(spec__contains={"secrets": [{"name": name}]})
    for reward in rewards:
        found |= Q(spec__contains=reward) | Q(spec__contains={"evaluation": reward})
    return found


_PARSERS: dict[str, Callable[[Search, str], None]] = {
    "status": _status,
    "condition": _condition,
    "kind": _kind,
    "name": _simple(lambda value: Q(name__icontains=value)),
    "text": _simple(lambda value: Q(name__icontains=value) | Q(notes__icontains=value) | Q(pk=value)),
    "tag": _simple(lambda value: Q(tags__contains=[value])),
    "author": _simple(lambda value: Q(created_by__username=value)),
    "model": _simple(
        lambda value: Q(base_model_id=value) | Q(base_model__name=value) | Q(initial_checkpoint_id=value)
    ),
    "dataset": _dataset,
    "function": _function,
    "parent": _simple(lambda value: Q(parent_id=value)),
    "secret": _simple(_names_secret),
    "sweep": _simple(lambda value: Q(trial__sweep_id=value)),
    "metric": _metric,
    "created_after": _timestamp("gte", "created_after"),
    "created_before": _timestamp("lt", "created_before"),
    "sort": _sort,
}
PARAMETERS = [
    OpenApiParameter("status", str, description="one or more, comma-separated"),
    OpenApiParameter(
        "condition", str, description=f"runs with one of {', '.join(CONDITIONS)}, comma-separated"
    ),
    OpenApiParameter("kind", str, description=f"one or more of {', '.join(RUN_KINDS)}, comma-separated"),
    OpenApiParameter("name", str, description="part of the name"),
    OpenApiParameter("text", str, description="part of the name or notes, or the id"),
    OpenApiParameter("tag", str, many=True, description="runs that have this tag; repeatable, all must hold"),
    OpenApiParameter("author", str, description="user name of who submitted it"),
    OpenApiParameter("model", str, description="base model by id or name, or checkpoint by id"),
    OpenApiParameter("dataset", str, description="id of a version, name, or name@3"),
    OpenApiParameter("function", str, description="uses this reward, workflow or loss: name or name@3"),
    OpenApiParameter("parent", str, description="runs made from this one"),
    OpenApiParameter("secret", str, description="runs whose spec names this project secret"),
    OpenApiParameter("sweep", str, description="runs of this sweep"),
    OpenApiParameter(
        "metric", str, many=True, description="bound of the newest value: reward/mean>=0.5; repeatable"
    ),
    OpenApiParameter("created_after", str, description="RFC 3339, inclusive"),
    OpenApiParameter("created_before", str, description="RFC 3339, exclusive"),
    OpenApiParameter(
        "sort",
        str,
        description=f"created, {', '.join(SORTS)}; prefix - sorts descending. Newest first when left out",
    ),
]


def _split_known(name: str, text: str, known: list[str]) -> list[str]:
    """The values of a comma-separated filter. 422 names an unknown one."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise invalid_parameter(name, f"{name}={word!r} is unknown; known: {', '.join(known)}", "unknown")
    return words
