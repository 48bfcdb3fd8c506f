"""Every queue has a process that serves it, wherever the installation is started, and webhooks hold nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_plane.celery import QUEUES, TICKS, WEBHOOKS, app
from local_stack.configuration import StackConfiguration
from local_stack.paths import checkout_paths
from local_stack.services import build_services
from local_stack.stack import SERVICE_NAMES
from tests.support.helm_render import Chart

ROOT = Path(__file__).resolve().parents[3]


def of_compose() -> list[Sequence[str]]:
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"].values()
    return [service["command"] for service in services if "command" in service]


def of_the_chart() -> list[Sequence[str]]:
    secrets = dict.fromkeys(("secret_key", "secrets_keys", "metrics_token"), "x")
    urls = {"database_url": "postgresql://a@b/c", "redis_url": "redis://b"}
    made: list[dict[str, Any]] = Chart(ROOT / "docker/helm").objects(
        {"host": "a.b", "secrets": secrets | urls}
    )
    pods = [item["spec"]["template"]["spec"] for item in made if "template" in item.get("spec", {})]
    return [container["command"] for pod in pods for container in pod["containers"] if "command" in container]


def of_one_machine() -> list[Sequence[str]]:
    names = {field.name: 1 for field in dataclasses.fields(StackConfiguration)}
    outside = {"embedded_postgres": False, "embedded_valkey": False, "agent": False, "ports": {"web": 8400}}
    made = build_services(checkout_paths(ROOT), StackConfiguration(**{**names, **outside}), {})
    assert {service.name for service in made} <= set(SERVICE_NAMES)
    return [service.argv for service in made]


@pytest.mark.parametrize("start", [of_compose, of_the_chart, of_one_machine])
def test_each_queue_is_served_by_a_process_of_its_own(start: Callable[[], list[Sequence[str]]]) -> None:
    workers = [words for words in start() if "celery" in words and "worker" in words]
    served = [words[list(words).index("--queues") + 1] for words in workers]
    assert sorted(served) == sorted(QUEUES)


def test_only_webhooks_leave_the_queue_of_ticks_and_a_worker_without_queues_serves_all() -> None:
    app.loader.import_default_modules()
    tasks = [entry["task"] for entry in app.conf.beat_schedule.values()]
    routed = {task: app.amqp.router.route({}, task)["queue"].name for task in tasks}
    assert {task for task, queue in routed.items() if queue == WEBHOOKS} == {
        "control_plane.webhooks.tasks.deliver_webhooks",
        "control_plane.webhooks.tasks.prune_deliveries",
    }
    assert set(routed.values()) == {TICKS, WEBHOOKS} == set(app.amqp.queues)
