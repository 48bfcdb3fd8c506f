"""What docker/ says of paths, ports, variables and commands is so. No container engine runs these tests."""

from __future__ import annotations

import argparse
import ipaddress
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_plane.config import load_config
from gpu_agents.agent import node_init
from gpu_agents.agent.__main__ import _parser
from local_stack import environments
from local_stack.paths import checkout_paths

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
OURS = ("migrate", "web", "worker", "webhooks", "beat")
AGENTS = ("agent", "agent-cuda")


def instructions(dockerfile: Path) -> list[str]:
    """Comments dropped, continued lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", dockerfile.read_text())
    return [line.strip() for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda file: file.name)
def test_an_image_copies_what_exists_and_runs_as_nobody_special(dockerfile: Path) -> None:
    lines = instructions(dockerfile)
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), (dockerfile.name, source)
    last = [number for number, line in enumerate(lines) if line.startswith("FROM ")][-1]
    users = [line for line in lines[last:] if line.startswith("USER ")]
    assert users == ["USER 10001:10001"]
    assert not any("ADD http" in line or "curl" in line for line in lines)


def installs(dockerfile: Path, python: str) -> list[str]:
    """The list of every pip call of an environment, in order. Each is whole, with hashes."""
    found = []
    for call in re.findall(rf"{python}/bin/pip install ([^&]*)", " ".join(instructions(dockerfile))):
        name = re.search(r"--requirement \S*/([\w.-]+)", call)
        assert name, call
        assert "--require-hashes" in call and "--no-deps" in call, call
        found.append(name[1])
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_agents_image_has_the_environments_of_a_checkout(device: str) -> None:
    paths = checkout_paths(ROOT)
    dockerfile = DOCKER / f"agent-{device}.Dockerfile"
    for python, wanted in (
        ("/app/.venv", environments.platform_environment(paths)),
        ("/opt/node", environments.node_environment(paths, device=device)),
    ):
        # An image is built with the public index, which has no CPU-only torch.
        expected = [
            one.requirements.name for install in wanted.installs for one in install.alternatives or (install,)
        ]
        assert installs(dockerfile, python) == expected


def test_the_control_planes_image_has_the_platform_environment() -> None:
    assert installs(DOCKER / "control-plane.Dockerfile", "/app/.venv") == ["platform.txt"]


def test_the_services_that_compose_starts_are_all_there() -> None:
    assert set(COMPOSE["services"]) == {"proxy", "postgres", "valkey", *OURS, *AGENTS}
    for name, service in COMPOSE["services"].items():
        for wanted in service.get("depends_on", {}):
            assert wanted in COMPOSE["services"], (name, wanted)
            if service["depends_on"][wanted]["condition"] == "service_healthy":
                assert "healthcheck" in COMPOSE["services"][wanted]
        for secret in service.get("secrets", []):
            assert secret in COMPOSE["secrets"], (name, secret)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DOCKER / source).exists(), (name, volume)
        if "build" in service:
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", [*OURS, *AGENTS])
def test_our_containers_are_read_only_and_powerless(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["user"] == "10001:10001"
    assert service["cap_drop"] == ["ALL"]
    assert any(entry.startswith("/tmp") for entry in service["tmpfs"])


def test_only_the_proxy_is_open_to_the_outside() -> None:
    assert [name for name, service in COMPOSE["services"].items() if "ports" in service] == ["proxy"]
    assert "respond /metrics 404" in (DOCKER / "Caddyfile").read_text()


def networks(name: str) -> set[str]:
    return set(COMPOSE["services"][name]["networks"])


def test_a_container_reaches_only_what_it_needs() -> None:
    for agent in AGENTS:
        assert {name for name in COMPOSE["services"] if networks(name) & networks(agent)} == {
            "proxy",
            *AGENTS,
        }
    for database in ("postgres", "valkey"):
        assert networks(database) == {"data"} and COMPOSE["networks"]["data"]["internal"] is True
        assert {name for name in COMPOSE["services"] if "data" in networks(name)} == {
            "postgres",
            "valkey",
            *OURS,
        }
    assert {name for name in COMPOSE["services"] if networks(name) & networks("proxy")} == {
        "proxy",
        "web",
        *AGENTS,
    }
    assert set().union(*(networks(name) for name in COMPOSE["services"])) == set(COMPOSE["networks"])


def test_the_web_processes_trust_the_address_of_the_proxy_and_no_other() -> None:
    def written(text: str) -> str:
        return text.replace("${OOLONG_EDGE_PREFIX:-172.30.84}", "172.30.84")

    proxy = COMPOSE["services"]["proxy"]["networks"]["edge"]["ipv4_address"]
    web = COMPOSE["services"]["web"]["environment"]
    assert web["OOLONG_TRUSTED_PROXIES"] == proxy and "FORWARDED_ALLOW_IPS" not in web
    (edge,) = COMPOSE["networks"]["edge"]["ipam"]["config"]
    address = ipaddress.ip_address(written(proxy))
    assert address in ipaddress.ip_network(written(edge["subnet"]))
    assert address not in ipaddress.ip_network(written(edge["ip_range"])), "nobody else may be given it"
    assert '"--no-proxy-headers"' in (DOCKER / "control-plane.Dockerfile").read_text()


def test_no_secret_is_a_variable() -> None:
    for name, service in COMPOSE["services"].items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|TOKEN|KEY|DATABASE_URL|REDIS_URL", variable):
                assert variable.endswith("_FILE") and value.startswith("/run/secrets/"), (name, variable)
                assert value.removeprefix("/run/secrets/") in service["secrets"]


@pytest.mark.parametrize("name", OURS)
def test_the_settings_of_a_container_are_a_production_installations(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variables of compose with the secrets of make-secrets are read, and not refused."""
    subprocess.run([str(DOCKER / "make-secrets"), str(tmp_path)], check=True, capture_output=True)
    for variable in (
        "SECRET_KEY",
        "DATABASE_URL",
        "REDIS_URL",
        "OOLONG_METRICS_TOKEN",
        "OOLONG_SECRETS_KEYS",
    ):
        monkeypatch.delenv(variable, raising=False)
    for line in instructions(DOCKER / "control-plane.Dockerfile"):
        if line.startswith("ENV "):
            for variable, value in re.findall(r"(\w+)=(\S+)", line):
                if variable.startswith(("OOLONG_", "DJANGO_")):
                    monkeypatch.setenv(variable, value)
    known = (ROOT / "platform/control_plane/config.py").read_text() + (
        ROOT / "platform/control_plane/settings.py"
    ).read_text()
    for variable, value in COMPOSE["services"][name]["environment"].items():
        plain = re.sub(r"\$\{OOLONG_HOST[^}]*\}", "oolong.example.org", value)
        plain = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", plain).replace("/run/secrets", str(tmp_path))
        monkeypatch.setenv(variable, plain)
        if not variable.startswith("OTEL_"):  # read by the SDK
            assert f'"{variable.removesuffix("_FILE")}"' in known, variable
    found = load_config()
    assert found.production and found.secure_cookies and "127.0.0.1" in found.allowed_hosts
    assert found.database_url.startswith("postgresql://oolong:") and len(found.secret_key) == 64


def test_making_secrets_again_keeps_them(tmp_path: Path) -> None:
    def make() -> dict[str, str]:
        subprocess.run([str(DOCKER / "make-secrets"), str(tmp_path / "new")], check=True, capture_output=True)
        return {file.name: file.read_text() for file in (tmp_path / "new").iterdir()}

    first = make()
    assert set(first) == set(COMPOSE["secrets"])
    assert make() == first
    assert first["postgres_password"].strip() in first["database_url"]
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert all((tmp_path / "new" / name).stat().st_mode & 0o044 for name in first), (
        "users of containers read them"
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_agents_command_is_one_that_it_takes(device: str) -> None:
    (command,) = [
        line for line in instructions(DOCKER / f"agent-{device}.Dockerfile") if line.startswith("CMD ")
    ]
    words = command.partition("gpu_agents.agent.node_init ")[2].rstrip('"]').replace('\\"', "").split()
    first: argparse.Namespace = node_init._parser().parse_args(words)
    assert first.agent[:3] == ["python", "-m", "gpu_agents.agent"]
    options: argparse.Namespace = _parser().parse_args(first.agent[3:])
    assert options.device == device and str(options.data_dir) == first.data_dir
    for agent in AGENTS:
        stop_within = float(COMPOSE["services"][agent]["stop_grace_period"].removesuffix("s"))
        assert first.grace + node_init.AGENT_SECONDS < stop_within, (
            "the engine kills what is not done by then"
        )
