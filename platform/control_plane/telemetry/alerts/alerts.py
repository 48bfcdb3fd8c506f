"""Evaluate the alert rules of active runs every few seconds, and open and close alerts."""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import Any

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import QuerySet

from control_plane.core.stream import event_stream
from control_plane.runs.attempt_status import WORKING
from control_plane.runs.boot import TITLES, boot_of, failed_boots
from control_plane.runs.events import record_event, run_summary, set_condition
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Attempt, Run
from control_plane.runs.runtime_overrides import runtime_overrides
from control_plane.telemetry.alerts import alert_rules as rules
from control_plane.telemetry.alerts.alert_window import START_STEPS, STEPS, TIME_POINTS, Window
from control_plane.telemetry.models import Alert
from control_plane.telemetry.query.serializers import AlertSerializer
from control_plane.webhooks import outbox
from oolong.contracts.run_spec import RunSpec

DEGRADED = "DEGRADED"  # a condition: a critical alert is open

_STEPS = """
SELECT s.name, array_agg(p.value ORDER BY p.x), max(p.at)
FROM telemetry_metricseries s,
     LATERAL (SELECT x, value, at FROM telemetry_metricpoint WHERE series_id = s.id AND value <> 'NaN'
              ORDER BY x {order} LIMIT %s) p
WHERE s.attempt_id = %s AND s.axis = 'step' AND s.name = ANY(%s)
GROUP BY s.name
"""
_TIMES = """
SELECT s.name, array_agg(p.value ORDER BY p.x)
FROM telemetry_metricseries s,
     LATERAL (SELECT x, value FROM telemetry_metricpoint WHERE series_id = s.id AND value <> 'NaN'
              ORDER BY x DESC LIMIT %s) p
WHERE s.attempt_id = %s AND s.axis = 'time' AND s.name = ANY(%s)
GROUP BY s.id, s.name
"""
_STEP_SECONDS = """
SELECT p.value
FROM telemetry_metricseries s,
     LATERAL (SELECT x, value FROM telemetry_metricpoint WHERE series_id = s.id AND value <> 'NaN'
              ORDER BY x DESC LIMIT %s) p
WHERE s.run_id = %s AND s.axis = 'step' AND s.name = 'time/step_seconds'
ORDER BY p.x DESC LIMIT %s
"""


def watch_runs(*, now: datetime) -> None:
    """Evaluate the rules of every active run, and close the open alerts of the others."""
    running = Run.objects.filter(status__in=WORKING).values_list("pk", flat=True)
    told = Alert.objects.filter(closed_at=None).values_list("run_id", flat=True)
    for_each_locked(sorted({*running, *told}), lambda run: watch_run(run, now=now))


def watch_run(run: Run, *, now: datetime) -> None:
    """The run is locked: only now is it certain whether it is active."""
    said = rules.evaluate(window_of(run, now=now)) if run.status in WORKING else {}
    _update_alerts(run, said, now=now)
    critical = [rule.title for rule in map(rules.rule_of, said) if rule.severity == "critical"]
    set_condition(run, DEGRADED, bool(critical), now=now, message="; ".join(critical))


def window_of(run: Run, *, now: datetime) -> Window:
    """What the rules may know of a run: two queries on its newest attempt, by the series' primary keys."""
    latest = run.attempts.order_by("-number").first()
    attempt = latest.pk if latest else None
    with connection.cursor() as cursor:
        cursor.execute(_STEPS.format(order="DESC"), (STEPS, attempt, list(rules.STEP_METRICS)))
        newest = cursor.fetchall()
        cursor.execute(_STEPS.format(order="ASC"), (START_STEPS, attempt, list(rules.START_METRICS)))
        first = cursor.fetchall()
        cursor.execute(_TIMES, (TIME_POINTS, attempt, list(rules.TIME_METRICS)))
        times: dict[str, list[list[float]]] = {}
        for name, values in cursor.fetchall():
            times.setdefault(name, []).append(values)
        own = next((values for name, values, _ in newest if name == "time/step_seconds"), None)
        usual = float(median(own)) if own else _median_step_seconds(cursor, run)
    last_step = max((at for name, _, at in newest if name == "time/step_seconds"), default=None)
    spec = RunSpec.model_validate(run.spec)
    bound = runtime_overrides(run).max_staleness
    return Window(
        steps={name: values for name, values, _ in newest},
        start={name: values for name, values, _ in first},
        times=times,
        seconds_since_step=(now - last_step).total_seconds() if last_step is not None else None,
        median_step_seconds=usual,
        failed_boots=failed_boots(latest) if latest else (),
        **(_boot(run, latest, now=now) if latest and last_step is None else {}),
        enforces_bound=spec.staleness.straggler_policy != "keep",
        buffer_capacity=(spec.staleness.max if bound is None else bound) * spec.trainer.groups_per_step,
    )


def _median_step_seconds(cursor: CursorWrapper, run: Run) -> float:
    """Median of the newest steps of earlier attempts; 0 when there are none."""
    cursor.execute(_STEP_SECONDS, (STEPS, run.pk, STEPS))
    return float(median([value for (value,) in cursor.fetchall()] or [0.0]))


def _boot(run: Run, attempt: Attempt, *, now: datetime) -> dict[str, Any]:
    """How far an attempt without a train step has come."""
    open_stage = next((stage for stage in boot_of(run) or [] if stage.state == "active"), None)
    generating = attempt.boot.get("milestones", {}).get("first_rollout")
    return {
        "boot_stage": TITLES[open_stage.name].lower() if open_stage else "",
        "boot_seconds": (now - attempt.created_at).total_seconds(),
        "generating_seconds": now.timestamp() - generating if generating is not None else None,
    }


def alerts_of(run: Run) -> QuerySet[Alert]:
    """Open ones first, then the newest."""
    return Alert.objects.filter(run=run)


def _update_alerts(run: Run, said: dict[str, str], *, now: datetime) -> None:
    opened = {alert.rule: alert for alert in Alert.objects.filter(run=run, closed_at=None)}
    changed: list[Alert] = []
    for name in opened.keys() - said.keys():
        alert = opened[name]
        alert.closed_at = now
        alert.save(update_fields=["closed_at"])
        changed.append(alert)
    for name in said.keys() - opened.keys():
        changed.append(
            Alert.objects.create(
                run=run, rule=name, message=_truncated(said[name]), train_step=run.train_step, opened_at=now
            )
        )
    for alert in changed:
        shown = AlertSerializer.render(alert)
        word = "over" if alert.closed_at else "alert"
        record_event(run, "alert", f"{word}: {shown['title']}: {alert.message}", at=now, rule=alert.rule)
        event_stream.publish(f"run:{run.pk}", "alert", shown)
        told = {"run": run_summary(run), "alert": shown}
        outbox.emit(run.project_id, "alert.resolved" if alert.closed_at else "alert.fired", told, now=now)


def _truncated(message: str) -> str:
    """What the column takes: the beginning, which says what it is about, and the end, where a log names its cause."""
    most = Alert._meta.get_field("message").max_length or len(message)
    return (
        message if len(message) <= most else f"{message[: most // 3]} … {message[-(most - most // 3 - 3) :]}"
    )
