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


def test_secrets_are_made_once_and_only_their_owner_reads_them(paths):
    configuration.prepare_data_folder(paths)
    first = configuration.load_secrets(paths)
    assert configuration.load_secrets(paths) == first
    assert stat.S_IMODE((paths.data / "secrets.json").stat().st_mode) == 0o600


def test_lost_secrets_are_not_replaced_while_data_depends_on_them(paths):
    configuration.prepare_data_folder(paths)
    (paths.data / "postgres").mkdir()
    with pytest.raises(StackError, match=r"secrets\.json is missing"):
        configuration.load_secrets(paths)


def test_external_services_take_the_place_of_the_embedded_ones(paths):
    environ = {"DATABASE_URL": "postgresql://u:p@db:5432/o", "REDIS_URL": "redis://r:6379/0"}
    chosen = configuration.resolve(paths, ports=PORTS, device="cpu", environ=environ)
    assert chosen.ports == {"web": 8400}
    variables = configuration.django_variables(paths, chosen, environ)
    assert variables["DATABASE_URL"] == environ["DATABASE_URL"]
    assert variables["REDIS_URL"] == environ["REDIS_URL"]


def test_another_kind_of_database_is_refused(paths):
    with pytest.raises(StackError, match="must begin with postgresql://"):
        configuration.resolve(paths, ports=PORTS, device="cpu", environ={"DATABASE_URL": "sqlite:///x"})


def test_a_configuration_survives_the_file(paths):
    chosen = configuration.resolve(paths, ports=PORTS, device="cpu", environ={"OOLONG_SLOTS": "3"})
    configuration.write_configuration(paths, chosen)
    assert configuration.read_configuration(paths) == chosen
    assert chosen.slots == 3


def test_the_environment_file_can_be_read_by_a_shell_and_by_us(paths):
    variables = {"A": "plain", "B": "with 'quotes' and $dollar", "C": "postgresql://u:p@h/d"}
    configuration.write_env_file(paths, variables)
    assert stat.S_IMODE(paths.env_file.stat().st_mode) == 0o600
    assert configuration.read_env_file(paths) == variables
    script = f'set -a; . {paths.env_file}; printf %s "$B"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True).stdout == variables["B"]


def test_the_agent_gets_no_secret_of_the_control_plane():
    variables = {"SECRET_KEY": "x", "DATABASE_URL": "x", "REDIS_URL": "x", "PATH": "/bin"}
    assert agent_environment(variables) == {"PATH": "/bin"}


def test_over_ssh_the_forwarding_line_names_this_machine_and_port():
    environ = {"SSH_CONNECTION": "10.0.0.9 51234 10.0.0.5 22"}
    line = stack.ssh_forward_command("http://127.0.0.1:8401", environ, user="alice", host="box")
    assert line == "ssh -N -L 8401:127.0.0.1:8401 alice@10.0.0.5"
    assert stack.ssh_forward_command("http://127.0.0.1:8401", {}, user="alice", host="box") == ""


def test_clean_names_everything_and_deletes_nothing_unless_confirmed(paths):
    configuration.prepare_data_folder(paths)
    (paths.data / "store" / "big").write_bytes(b"x" * 200_000)
    said: list[str] = []
    assert not stack.clean(paths, everything=False, confirmed=lambda _: False, echo=said.append)
    assert (paths.data / "store" / "big").exists()
    assert any(str(paths.data) in line and "kB" in line for line in said)
    assert stack.clean(paths, everything=False, confirmed=lambda _: True, echo=said.append)
    assert not paths.data.exists()
