"""What looks wrong, and what to do about it: pure rules over what was collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oolong.sandbox.capabilities import command_for_user_namespaces, in_container, read_kernel_settings
from oolong.sandbox.kernel import WITHOUT_SANDBOX

TICK_STALE_SECONDS = 60.0
DISK_LOW_SHARE = 0.10
QUEUE_LONG_SECONDS = 600.0
# Their period is a minute or more, or nothing is wrong when they rest.
SLOW_TICKS = frozenset({"clean-up"})


@dataclass(frozen=True)
class Diagnosis:
    level: str  # fault, warning
    what: str
    do: str


def findings(collected: dict[str, Any]) -> list[Diagnosis]:
    """Faults first."""
    found = [
        *_services(collected["services"]),
        *_migrations(collected["migrations"]),
        *_ticks(collected["ticks"]),
        *_queue(collected["runs"], collected["slots"]),
        *_nodes(collected["nodes"]),
        *_disk(collected["disk"]),
        *_dashboard(collected["dashboard"]),
        *_settings(collected["settings"]),
        *_untrusted_proxy(collected["untrusted_proxy"]),
        *_sandbox(collected["sandbox"]),
    ]
    return sorted(found, key=lambda advice: advice.level != "fault")


def _services(services: list[dict[str, Any]]) -> list[Diagnosis]:
    return [
        Diagnosis(
            "fault",
            f"{service['service']}: {service['message']}",
            "`manage.py init --check-only` checks it again",
        )
        for service in services
        if not service["ok"]
    ]


def _migrations(migrations: dict[str, Any]) -> list[Diagnosis]:
    missing = migrations.get("not_applied", [])
    if not missing:
        return []
    return [
        Diagnosis(
            "fault", f"{len(missing)} migration(s) are not applied: {missing[0]}", "run `manage.py migrate`"
        )
    ]


def _ticks(ticks: list[dict[str, Any]]) -> list[Diagnosis]:
    found = []
    if not ticks:
        found.append(Diagnosis("fault", "no tick has ever run", "start a worker and beat"))
    stale = [
        tick for tick in ticks if tick["age_seconds"] > TICK_STALE_SECONDS and tick["name"] not in SLOW_TICKS
    ]
    if stale and len(stale) == len([tick for tick in ticks if tick["name"] not in SLOW_TICKS]):
        age = min(tick["age_seconds"] for tick in stale)
        found.append(
            Diagnosis(
                "fault", f"nothing has ticked for {age:.0f} s", "a worker and beat must run; see their logs"
            )
        )
    else:
        found += [
            Diagnosis(
                "warning", f"the tick {tick['name']} has not run for {tick['age_seconds']:.0f} s",
                "see the worker's log; a worker that hangs may be killed at any time",
            )
            for tick in stale
        ]  # fmt: skip
    found += [
        Diagnosis(
            "warning", f"the tick {tick['name']} has failed {tick['failures']} times", "see the worker's log"
        )
        for tick in ticks
        if tick["failures"]
    ]
    return found


def _queue(runs: dict[str, Any], slots: dict[str, int]) -> list[Diagnosis]:
    waited = runs.get("oldest_queued_seconds", 0.0)
    if waited > QUEUE_LONG_SECONDS and slots.get("free", 0) > 0:
        return [
            Diagnosis(
                "warning", f"a run has waited for {waited / 60:.0f} min while {slots['free']} slot(s) are free",
                f"its page says why: {runs.get('oldest_queued_reason') or 'nothing yet'}",
            )
        ]  # fmt: skip
    return []


def _nodes(nodes: list[dict[str, Any]]) -> list[Diagnosis]:
    if not nodes:
        return [Diagnosis("warning", "no node has joined", "`oolong node join-token` gives a token for one")]
    found = [
        Diagnosis(
            "fault" if node["status"] == "LOST" else "warning",
            f"node {node['name']} is {node['status']}, silent for {node['silent_seconds']:.0f} s",
            "see the agent's log on that machine: its network, its credential, its disk",
        )
        for node in nodes
        if node["status"] in ("UNRESPONSIVE", "LOST")
    ]
    found += [
        Diagnosis(
            "warning",
            f"node {node['name']}: {node['unhealthy']} unhealthy slot(s)",
            "`oolong node list` and its page say why",
        )
        for node in nodes
        if node["unhealthy"]
    ]
    versions = sorted({node["agent_version"] for node in nodes if node["status"] != "LOST"})
    if len(versions) > 1:
        found.append(
            Diagnosis(
                "warning", f"agents of several versions: {', '.join(versions)}", "upgrade them, one by one"
            )
        )
    return found


def _disk(disk: list[dict[str, Any]]) -> list[Diagnosis]:
    return [
        Diagnosis(
            "fault" if place["free_bytes"] < place["total_bytes"] * DISK_LOW_SHARE / 5 else "warning",
            f"{place['what']} has {place['free_bytes'] / 1e9:.1f} GB free of {place['total_bytes'] / 1e9:.1f} GB",
            "make room: `oolong checkpoint prune` frees checkpoints, `manage.py verify` names blobs of nobody",
        )
        for place in disk
        if place["free_bytes"] < place["total_bytes"] * DISK_LOW_SHARE
    ]


def _dashboard(dashboard: dict[str, Any]) -> list[Diagnosis]:
    if dashboard["built"]:
        return []
    return [
        Diagnosis(
            "warning", f"the dashboard is not built: {dashboard['path']} has no index.html; the API works without it",
            "`python3 manage.py webui` builds it; var/logs/webui-build.log tells why an earlier try failed",
        )
    ]  # fmt: skip


def _untrusted_proxy(sender: str) -> list[Diagnosis]:
    if not sender:
        return []
    return [
        Diagnosis(
            "warning",
            f"{sender} sent X-Forwarded headers within a day and is no trusted proxy: they were ignored, and all who "
            "come through it share its address",
            "if that is your proxy, put its address into OOLONG_TRUSTED_PROXIES and restart the web processes",
        )
    ]


def _sandbox(refusal: str) -> list[Diagnosis]:
    """Of this machine; nodes say theirs in the document `reward_service` of each run."""
    if not refusal:
        return []
    command = command_for_user_namespaces(read_kernel_settings(), in_container=in_container())
    return [
        Diagnosis(
            "warning", f"no sandbox on this machine, for {refusal}. Without one {WITHOUT_SANDBOX}", command
        )
    ]


def _settings(settings: dict[str, str]) -> list[Diagnosis]:
    found = []
    if settings.get("debug") == "True":
        found.append(
            Diagnosis("fault", "OOLONG_DEBUG=1 shows code and settings to whoever meets an error", "unset it")
        )
    if settings.get("production") == "True" and settings.get("metrics_token") == "not set":
        found.append(
            Diagnosis(
                "warning", "nobody measures: OOLONG_METRICS_TOKEN is not set", "set it, scrape /metrics"
            )
        )
    return found
