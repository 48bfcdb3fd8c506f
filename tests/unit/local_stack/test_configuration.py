"""Configuration and secrets of one clone."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from local_stack import configuration, stack
from local_stack.errors import StackError
from local_stack.paths import resolve_paths
from local_stack.services import agent_environment

PORTS = {"web": 8400, "postgres": 8432, "valkey": 8479}


@pytest.fixture
def paths(tmp_path: Path, checkout: Path):
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "constraints").symlink_to(checkout / "constraints")
    environ = {"OOLONG_HOME": str(tmp_path / "home")}
    return resolve_paths(tmp_path / "clone", environ=environ, uid=os.geteuid(), user_home=tmp_path)


def test_secrets_are_generated_once_and_readable_by_owner_only(paths):
    configuration.prepare_data_folder(paths)
    first = configuration.load_secrets(paths)
    assert configuration.load_secrets(paths) == first
    assert stat.S_IMODE((paths.data / "secrets.json").stat().st_mode) == 0o600


def test_lost_secrets_are_not_regenerated_while_data_exists(paths):
    configuration.prepare_data_folder(paths)
    (paths.data / "postgres").mkdir()
    with pytest.raises(StackError, match=r"secrets\.json is missing"):
        configuration.load_secrets(paths)


def test_external_services_replace_embedded_ones(paths):
    environ = {"DATABASE_URL": "postgresql://u:p@db:5432/o", "REDIS_URL": "redis://r:6379/0"}
    chosen = configuration.resolve(paths, ports=PORTS, device="cpu", environ=environ)
    assert chosen.ports == {"web": 8400}
    variables = configuration.django_variables(paths, chosen, environ)
    assert variables["DATABASE_URL"] == environ["DATABASE_URL"]
    assert variables["REDIS_URL"] == environ["REDIS_URL"]


def test_other_database_kinds_are_rejected(paths):
    with pytest.raises(StackError, match="must begin with postgresql://"):
        configuration.resolve(paths, ports=PORTS, device="cpu", environ={"DATABASE_URL": "sqlite:///x"})


def test_configuration_round_trips_through_its_file(paths):
    chosen = configuration.resolve(paths, ports=PORTS, device="cpu", environ={"OOLONG_SLOTS": "3"})
    configuration.write_configuration(paths, chosen)
    assert configuration.read_configuration(paths) == chosen
    assert chosen.slots == 3


def test_environment_file_is_readable_by_shell_and_stack(paths):
    variables = {"A": "plain", "B": "with 'quotes' and $dollar", "C": "postgresql://u:p@h/d"}
    configuration.write_env_file(paths, variables)
    assert stat.S_IMODE(paths.env_file.stat().st_mode) == 0o600
    assert configuration.read_env_file(paths) == variables
    script = f'set -a; . {paths.env_file}; printf %s "$B"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True).stdout == variables["B"]


def test_agent_environment_has_no_control_plane_secret():
    variables = {"SECRET_KEY": "x", "DATABASE_URL": "x", "REDIS_URL": "x", "PATH": "/bin"}
    assert agent_environment(variables) == {"PATH": "/bin"}


def test_ssh_forward_command_names_machine_and_port():
    environ = {"SSH_CONNECTION": "10.0.0.9 51234 10.0.0.5 22"}
    line = stack.ssh_forward_command("http://127.0.0.1:8401", environ, user="alice", host="box")
    assert line == "ssh -N -L 8401:127.0.0.1:8401 alice@10.0.0.5"
    assert stack.ssh_forward_command("http://127.0.0.1:8401", {}, user="alice", host="box") == ""


def test_clean_lists_sizes_and_deletes_only_after_confirmation(paths):
    configuration.prepare_data_folder(paths)
    (paths.data / "store" / "big").write_bytes(b"x" * 200_000)
    output: list[str] = []
    assert not stack.clean(paths, everything=False, confirmed=lambda _: False, echo=output.append)
    assert (paths.data / "store" / "big").exists()
    assert any(str(paths.data) in line and "kB" in line for line in output)
    assert stack.clean(paths, everything=False, confirmed=lambda _: True, echo=output.append)
    assert not paths.data.exists()
