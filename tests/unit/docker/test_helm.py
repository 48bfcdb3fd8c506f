"""The Helm chart, rendered by our own small renderer: no helm and no cluster is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import oolong
from tests.support.helm_render import Chart, RenderError, merged

ROOT = Path(__file__).resolve().parents[3]
CHART = Chart(ROOT / "docker" / "helm")
SCHEMA = json.loads((ROOT / "docker" / "helm" / "values.schema.json").read_text())
SECRETS = {
    "secret_key": "k" * 64, "secrets_keys": "s" * 64, "database_url": "postgresql://oolong:pw@db/oolong",
    "redis_url": "redis://:pw@valkey/0", "metrics_token": "t",
}  # fmt: skip
GOOD: dict[str, Any] = {"host": "oolong.example.org", "secrets": SECRETS}
ALL: dict[str, Any] = {**GOOD, "agent": {"enabled": True}, "serviceMonitor": {"enabled": True}}


def objects(values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(item["kind"], item["metadata"]["name"]): item for item in CHART.objects(values)}


def pods(found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    return {
        name: item["spec"]["template"]["spec"]
        for (_, name), item in found.items()
        if "template" in item.get("spec", {})
    }


def test_the_chart_makes_what_an_installation_needs() -> None:
    kinds = set(objects(ALL))
    assert kinds == {
        ("ConfigMap", "oolong"), ("Secret", "oolong"), ("PersistentVolumeClaim", "oolong-store"),
        ("Job", "oolong-migrate"), ("Deployment", "oolong-web"), ("Service", "oolong-web"),
        ("PodDisruptionBudget", "oolong-web"), ("Deployment", "oolong-worker"),
        ("PodDisruptionBudget", "oolong-worker"), ("Deployment", "oolong-beat"), ("Ingress", "oolong"),
        ("Deployment", "oolong-webhooks"), ("ServiceMonitor", "oolong"), ("DaemonSet", "oolong-agent"),
        ("NetworkPolicy", "oolong-control-plane"), ("NetworkPolicy", "oolong-web"), ("NetworkPolicy", "oolong-agent"),
    }  # fmt: skip
    assert ("DaemonSet", "oolong-agent") not in objects(GOOD)


def test_migrations_run_before_the_processes_of_the_new_version() -> None:
    found = objects(GOOD)
    order = {
        name: int(item["metadata"]["annotations"]["helm.sh/hook-weight"])
        for (kind, name), item in found.items()
        if "helm.sh/hook" in item["metadata"].get("annotations", {})
        and kind in ("ConfigMap", "Secret", "Job")
    }
    assert order["oolong-migrate"] > order["oolong"]
    job = found["Job", "oolong-migrate"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][:4] == [
        "python",
        "-m",
        "django",
        "migrate",
    ]


def test_every_container_is_read_only_and_every_mount_has_its_volume() -> None:
    for name, pod in pods(objects(ALL)).items():
        assert pod["securityContext"]["runAsUser"] == 10001, name
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"])


def test_selectors_find_their_pods() -> None:
    found = objects(ALL)
    for (kind, name), item in found.items():
        if kind in ("Deployment", "DaemonSet"):
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert item["spec"]["selector"]["matchLabels"].items() <= labels.items(), name
        if kind in ("Service", "PodDisruptionBudget"):
            wanted = item["spec"]["selector"].get("matchLabels", item["spec"]["selector"])
            target = found["Deployment", name]["spec"]["template"]["metadata"]["labels"]
            assert wanted.items() <= target.items(), name
    backend = found["Ingress", "oolong"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "oolong-web", "port": {"name": "http"}}


def test_the_probes_use_addresses_that_answer_by_a_host_that_is_allowed() -> None:
    found = objects(GOOD)
    hosts = found["ConfigMap", "oolong"]["data"]["ALLOWED_HOSTS"].split(",")
    (web,) = pods(found)["oolong-web"]["containers"]
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        asked = web[probe]["httpGet"]
        assert asked["path"] == path and asked["httpHeaders"][0]["value"] in hosts
    assert web["ports"] == [{"name": "http", "containerPort": 8400}]


def policies(values: dict[str, Any]) -> dict[str, Any]:
    return {name: item["spec"] for (kind, name), item in objects(values).items() if kind == "NetworkPolicy"}


def selects(policy: dict[str, Any], values: dict[str, Any]) -> set[str]:
    """The workloads whose pods a policy is about."""
    wanted = policy["podSelector"]["matchLabels"].items()
    return {
        name
        for (_, name), item in objects(values).items()
        if "template" in item.get("spec", {})
        and wanted <= item["spec"]["template"]["metadata"]["labels"].items()
    }


def test_nobody_is_trusted_to_name_the_client_unless_values_say_so() -> None:
    def trusted(values: dict[str, Any]) -> list[str]:
        containers = pods(objects(values))["oolong-web"]["containers"]
        environment = {entry["name"]: entry.get("value") for entry in containers[0]["env"]}
        assert "FORWARDED_ALLOW_IPS" not in environment
        return [environment["OOLONG_TRUSTED_PROXIES"]]

    assert trusted(ALL) == [""]
    assert trusted({**ALL, "trustedProxies": "10.42.0.0/24"}) == ["10.42.0.0/24"]
    for bad in ("*", "ingress-nginx"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(merged(CHART.values, {**ALL, "trustedProxies": bad}), SCHEMA)


def test_the_control_plane_takes_connections_from_the_ingress_to_the_web_processes_alone() -> None:
    found = policies(ALL)
    ours = {"oolong-web", "oolong-worker", "oolong-webhooks", "oolong-beat", "oolong-migrate"}
    assert selects(found["oolong-control-plane"], ALL) == ours
    assert "ingress" not in found["oolong-control-plane"]
    assert selects(found["oolong-web"], ALL) == {"oolong-web"}
    (rule,) = found["oolong-web"]["ingress"]
    assert rule["from"] == CHART.values["networkPolicy"]["webFrom"] and rule["ports"][0]["port"] == 8400
    assert all(policy["policyTypes"][0] == "Ingress" for policy in found.values())
    assert policies({**ALL, "networkPolicy": {"enabled": False}}) == {}


def test_agents_reach_names_the_ingress_and_https_outside_of_the_cluster_and_nobody_reaches_them() -> None:
    agent = policies(ALL)["oolong-agent"]
    assert selects(agent, ALL) == {"oolong-agent"}
    assert agent["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in agent
    dns, ingress, outside = agent["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert ingress["to"] == CHART.values["networkPolicy"]["webFrom"]
    assert "10.0.0.0/8" in outside["to"][0]["ipBlock"]["except"] and outside["ports"][0]["port"] == 443


def test_databases_in_the_cluster_are_open_to_the_control_plane_alone() -> None:
    assert not {"oolong-database", "oolong-cache"} & set(policies(ALL))
    found = policies({**ALL, "networkPolicy": {"databases": {"app": "pg"}, "cache": {"app": "valkey"}}})
    for name, app, port in (("oolong-database", "pg", 5432), ("oolong-cache", "valkey", 6379)):
        (rule,) = found[name]["ingress"]
        (peer,) = rule["from"]
        assert (
            found[name]["podSelector"] == {"matchLabels": {"app": app}} and rule["ports"][0]["port"] == port
        )
        assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/part-of"] == "control-plane"


def test_secrets_reach_a_pod_as_files_only() -> None:
    found = objects(GOOD)
    for name, pod in pods(found).items():
        for container in pod["containers"]:
            text = json.dumps(container.get("env", []))
            assert not any(value in text for value in SECRETS.values() if len(value) > 1), name
            files = {entry["value"] for entry in container["env"] if entry["name"].endswith("_FILE")}
            assert files == {f"/run/secrets/oolong/{key}" for key in SECRETS}
    assert found["Secret", "oolong"]["stringData"] == SECRETS
    own = objects({"host": "oolong.example.org", "existingSecret": "mine"})
    assert ("Secret", "oolong") not in own
    volumes = pods(own)["oolong-web"]["volumes"]
    assert {"name": "secrets", "secret": {"secretName": "mine"}} in volumes


def test_what_is_missing_is_named() -> None:
    with pytest.raises(RenderError, match="host is the public name"):
        CHART.objects({"secrets": SECRETS})
    with pytest.raises(RenderError, match=r"secrets\.database_url: postgresql://"):
        CHART.objects({**GOOD, "secrets": {**SECRETS, "database_url": ""}})


def test_the_schema_takes_good_values_and_the_defaults_say_what_is_missing() -> None:
    jsonschema.validate(merged(CHART.values, ALL), SCHEMA)
    with pytest.raises(jsonschema.ValidationError, match="''"):
        jsonschema.validate(CHART.values, SCHEMA)  # host


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"host": "https://oolong.example.org"}, "host"),
        ({"web": {"replicas": 0}}, "web"),
        ({"wep": {}}, ""),
        ({"secrets": {"database_url": "mysql://db"}}, "secrets"),
        ({"storage": {"url": "/mnt/store"}}, "storage"),
    ],
)
def test_the_schema_refuses_what_would_not_work(change: dict[str, Any], at: str) -> None:
    with pytest.raises(jsonschema.ValidationError) as refusal:
        jsonschema.validate(merged(merged(CHART.values, GOOD), change), SCHEMA)
    assert (refusal.value.absolute_path[0] if refusal.value.absolute_path else "") == at


def test_the_chart_is_of_this_version() -> None:
    assert CHART.meta["appVersion"] == CHART.meta["version"] == oolong.__version__


def test_the_renderer_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{name: x, appVersion: '1'}")
    (tmp_path / "values.yaml").write_text("{a: 1}")
    (tmp_path / "templates" / "_helpers.tpl").write_text("")
    for text, says in (
        ("{{ .Values.b }}", "there is no .Values.b"),
        ("{{ sha256sum .Values.a }}", "the function sha256sum"),
        ("{{ if .Values.a }}x", "has no end"),
    ):
        (tmp_path / "templates" / "x.yaml").write_text(text)
        with pytest.raises(RenderError, match=says):
            Chart(tmp_path).objects({})
