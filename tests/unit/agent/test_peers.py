"""What an agent makes of an attempt whose jobs are on two nodes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gpu_agents.agent.__main__ import main
from gpu_agents.agent.identity import inventory_of
from gpu_agents.agent.launch import (
    InputPaths,
    JobContext,
    attempt_port_conflict,
    trainer_command,
    write_attempt,
)
from gpu_agents.agent.settings import AgentSettings, DataDirectory, check_peer_address
from oolong.contracts.agent import Artifact, DesiredAttempt, PeerListener, TrainerGang, TrainerNode
from oolong.contracts.attempt import AttemptFile, PeerListenerFile, read_attempt
from tests.support.ports import reserve_port
from tests.support.tiny_specs import tiny_spec

CERTIFICATE = "-----BEGIN CERTIFICATE-----"
GANG = {
    "kind": "sft", "name": "wide", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"},
    "trainer": {"num_ranks": 4},
}  # fmt: skip
LISTENER = PeerListener(address="127.0.0.2", certificate=CERTIFICATE, private_key="key")


def attempt(**changes: object) -> DesiredAttempt:
    values: dict[str, object] = {
        "run_id": "run_1", "attempt_id": "att_1", "attempt_number": 1, "epoch": 1, "spec": {}, "evaluation": None,
        "dataset": Artifact(sha256="0" * 64, bytes=1, kind="dataset"), "model": None, "model_path": "/m",
        "resume": None, "ports": {"controller": 5001, "reward": 5002, "weights": 5003}, "token": "t", "jobs": [],
    }  # fmt: skip
    return DesiredAttempt(**{**values, **changes})  # type: ignore[arg-type]


def written(folder: Path, wanted: DesiredAttempt) -> AttemptFile:
    inputs = InputPaths(dataset_file=Path("/rows"), model_directory=Path("/m"))
    data = DataDirectory(folder)
    data.create()
    return read_attempt(write_attempt(data, wanted, inputs, node_python="/p", device="cpu"))


def test_the_trainers_node_listens_for_others_and_uses_loopback_itself(tmp_path: Path) -> None:
    file = written(tmp_path, attempt(listener=LISTENER))
    assert file.listener == PeerListenerFile(
        address="127.0.0.2", certificate=CERTIFICATE, private_key="key", weights_port=5003
    )
    assert (file.controller_url, file.weights_url) == ("http://127.0.0.1:5001", "")


@pytest.mark.parametrize(("address", "host"), [("10.0.0.5", "10.0.0.5"), ("fd00::5", "[fd00::5]")])
def test_another_node_reaches_the_trainers_node_with_tls(tmp_path: Path, address: str, host: str) -> None:
    ports = {"controller": 5001, "reward": 5002, "weights": 5003}
    trainer_node = TrainerNode(address=address, ports=ports, certificate=CERTIFICATE)
    file = written(tmp_path, attempt(ports={"engine-3": 6001}, trainer_node=trainer_node))
    assert (file.controller_url, file.reward_url, file.weights_url) == (
        f"https://{host}:5001", f"https://{host}:5002", f"https://{host}:5003",
    )  # fmt: skip
    assert (file.certificate, file.listener) == (CERTIFICATE, None)


def test_an_attempt_that_stays_on_its_node_listens_nowhere_else(tmp_path: Path) -> None:
    assert written(tmp_path, attempt()).listener is None


def gang(node_rank: int, **changes: object) -> TrainerGang:
    own = f"127.0.0.{2 + node_rank}"
    values = {"address": "127.0.0.2", "port": 5009, "nodes": 2, "node_rank": node_rank, "own_address": own}
    return TrainerGang(**{**values, **changes})  # type: ignore[arg-type]


def test_each_node_of_a_trainer_starts_the_ranks_of_its_slots(tmp_path: Path) -> None:
    file = written(tmp_path, attempt(ports={}, gang=gang(1), spec=tiny_spec(GANG)))
    assert file.gang is not None and (file.gang.interface, file.controller_url) == ("lo", "")
    context = JobContext(
        attempt=file, attempt_file=tmp_path, job_directory=tmp_path, slots=["cpu-0", "cpu-1"]
    )
    assert trainer_command(context)[1:-4] == [
        "-m", "trainers.distributed.launch", "--nodes", "2", "--node-rank", "1", "--address", "127.0.0.2", "--port",
        "5009", "2", "trainers.sft",
    ]  # fmt: skip


def test_a_peer_address_that_has_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="has the peer address 192"):
        written(tmp_path, attempt(gang=gang(1, own_address="192.0.2.7")))


def test_the_port_where_ranks_meet_is_checked_on_the_first_node() -> None:
    port = reserve_port()
    ports = {"rendezvous": port}
    with socket.create_server(("127.0.0.2", port)):
        assert attempt_port_conflict(attempt(ports=ports, gang=gang(0, port=port))).startswith(
            f"port {port} (rendezvous) cannot be bound at its peer address 127.0.0.2"
        )
        assert attempt_port_conflict(attempt(ports={}, gang=gang(1, port=port))) == ""


def test_a_port_that_is_taken_at_the_peer_address_is_named() -> None:
    ports = {name: reserve_port() for name in ("controller", "reward", "weights")}
    wanted = attempt(ports=ports, listener=LISTENER)
    assert attempt_port_conflict(wanted) == ""
    with socket.create_server(("127.0.0.2", ports["weights"])):
        assert attempt_port_conflict(wanted).startswith(
            f"port {ports['weights']} (weights) cannot be bound at its peer address 127.0.0.2"
        )
        assert attempt_port_conflict(attempt(ports=ports)) == "", "without other nodes nobody listens there"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("node-1", "is no IP address"),
        ("0.0.0.0", "the one address"),
        ("192.0.2.7", "is no address of this machine"),
    ],
)
def test_a_peer_address_is_one_of_this_machine(address: str, said: str) -> None:
    assert check_peer_address("127.0.0.2") == "127.0.0.2"
    with pytest.raises(ValueError, match=said):
        check_peer_address(address)


def test_a_node_reports_its_peer_address_only_if_it_has_one(tmp_path: Path) -> None:
    settings = {
        "server": "http://127.0.0.1:1",
        "data_directory": tmp_path,
        "node_python": "python",
        "name": "n",
    }
    alone = inventory_of(AgentSettings(**settings))  # type: ignore[arg-type]
    assert (alone.peer_address, alone.peer_network) == ("", "")
    peer = inventory_of(AgentSettings(**settings, peer_address="127.0.0.2", peer_network="rack"))  # type: ignore[arg-type]
    assert (peer.peer_address, peer.peer_network) == ("127.0.0.2", "rack")


def test_a_peer_network_needs_an_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--server", "http://127.0.0.1:1", "--data-dir", str(tmp_path), "--node-python", "python"]
    assert main(["run", *words, "--peer-network", "east"]) == 2
    assert "--peer-network east has no effect without --peer-address" in capsys.readouterr().err
    assert main(["run", *words, "--peer-address", "192.0.2.7"]) == 2
    assert "192.0.2.7 is no address of this machine" in capsys.readouterr().err
