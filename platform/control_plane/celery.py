"""The Celery app. Every task is a short periodic tick that may be lost or run twice."""

from __future__ import annotations

import logging.config
import os

from celery import Celery
from celery.signals import setup_logging, worker_process_init, worker_process_shutdown
from django.conf import settings
from kombu import Exchange, Queue

from oolong.tracing import start_tracing, stop_tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

TICKS, WEBHOOKS = QUEUES = ("celery", "webhooks")

app = Celery("control_plane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_time_limit=60,
    task_soft_time_limit=50,
    # Receivers of webhooks may be slow: a process of their own serves them, and nothing else waits for it. A worker
    # that is started without --queues serves both.
    task_queues=[Queue(name, Exchange(name, type="direct"), routing_key=name) for name in QUEUES],
    task_default_queue=TICKS,
    task_routes={"control_plane.webhooks.tasks.*": {"queue": WEBHOOKS}},
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 600,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
    },
    # A tick that waited longer than its period is replaced by the next one.
    beat_schedule={
        "place-jobs": {
            "task": "control_plane.runs.tasks.place_jobs",
            "schedule": 1.0,
            "options": {"expires": 5},
        },
        "advance-runs": {
            "task": "control_plane.runs.tasks.advance_runs",
            "schedule": 1.0,
            "options": {"expires": 5},
        },
        "forecast-runs": {
            "task": "control_plane.runs.tasks.forecast_runs",
            "schedule": 15.0,
            "options": {"expires": 15},
        },
        "check-budgets": {
            "task": "control_plane.runs.tasks.check_budgets",
            "schedule": 15.0,
            "options": {"expires": 15},
        },
        "sweep-leases": {
            "task": "control_plane.runs.tasks.sweep_leases",
            "schedule": 2.0,
            "options": {"expires": 5},
        },
        "advance-validations": {
            "task": "control_plane.assets.tasks.advance_validations",
            "schedule": 1.0,
            "options": {"expires": 5},
        },
        "advance-measurements": {
            "task": "control_plane.assets.tasks.advance_measurements",
            "schedule": 2.0,
            "options": {"expires": 5},
        },
        "advance-model-checks": {
            "task": "control_plane.assets.tasks.advance_model_checks",
            "schedule": 1.0,
            "options": {"expires": 5},
        },
        "advance-imports": {
            "task": "control_plane.assets.tasks.advance_imports",
            "schedule": 30.0,
            "options": {"expires": 30},
        },
        "watch-runs": {
            "task": "control_plane.telemetry.tasks.watch_runs",
            "schedule": 10.0,
            "options": {"expires": 20},
        },
        "seal-audit": {
            "task": "control_plane.accounts.tasks.seal_audit",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        "roll-up-series": {
            "task": "control_plane.telemetry.tasks.roll_up_series",
            "schedule": 10.0,
            "options": {"expires": 20},
        },
        "compact-series": {
            "task": "control_plane.telemetry.tasks.compact_series",
            "schedule": 60.0,
            "options": {"expires": 60},
        },
        "advance-sweeps": {
            "task": "control_plane.experiments.tasks.advance_sweeps",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        "deliver-webhooks": {
            "task": "control_plane.webhooks.tasks.deliver_webhooks",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        "prune-deliveries": {
            "task": "control_plane.webhooks.tasks.prune_deliveries",
            "schedule": 3600.0,
            "options": {"expires": 600},
        },
        "write-trajectory-files": {
            "task": "control_plane.telemetry.tasks.write_trajectory_files",
            "schedule": 30.0,
            "options": {"expires": 30},
        },
        "remove-old-telemetry": {
            "task": "control_plane.telemetry.tasks.remove_old_telemetry",
            "schedule": 3600.0,
            "options": {"expires": 600},
        },
        "prune-stream": {
            "task": "control_plane.telemetry.tasks.prune_stream",
            "schedule": 60.0,
            "options": {"expires": 60},
        },
        "clean-up": {
            "task": "control_plane.runs.tasks.clean_up",
            "schedule": 600.0,
            "options": {"expires": 300},
        },
    },
    beat_max_loop_interval=1,
    beat_scheduler="control_plane.beat:Scheduler",
)
app.autodiscover_tasks()


@setup_logging.connect
def _keep_our_logging(**_: object) -> None:
    """Celery would replace the configured handlers with its own."""
    logging.config.dictConfig(settings.LOGGING)
    logging.getLogger("celery").setLevel(logging.WARNING)


@worker_process_init.connect
def _trace(**_: object) -> None:
    start_tracing("oolong-worker")


@worker_process_shutdown.connect
def _send_last_spans(**_: object) -> None:
    stop_tracing()
