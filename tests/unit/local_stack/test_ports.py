"""Ports: the previous one, else the preferred one, else the next free one; never one of another clone."""

import socket
from pathlib import Path

import pytest

from local_stack import ports
from local_stack.errors import StackError

PREFERRED = {"web": 8400, "postgres": 8432}


def _allocate(*, before=None, others=(), busy=()):
    return ports.allocate(
        before=before or {},
        preferred=PREFERRED,
        used_by_other_clones=set(others),
        usable=lambda port: port not in busy,
    )


def test_free_preferred_ports_are_allocated():
    assert _allocate() == PREFERRED


def test_next_free_port_replaces_a_busy_one():
    assert _allocate(busy=(8400, 8401))["web"] == 8402


def test_previous_port_comes_first():
    assert _allocate(before={"web": 8450})["web"] == 8450


def test_port_of_a_stopped_clone_stays_reserved():
    assert _allocate(others=(8400,))["web"] == 8401


def test_error_without_free_ports_names_the_variable():
    with pytest.raises(StackError, match="OOLONG_WEB_PORT"):
        _allocate(busy=range(8400, 8700))


def _reserved(register: Path, root: Path, **environ: str):
    return ports.reserve(register, clone_root=root, before={}, environ=environ, own=set())


def test_two_clones_of_one_user_get_different_ports(tmp_path: Path):
    chosen = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with _reserved(tmp_path / "ports.json", tmp_path / name) as reserved:
            chosen.append(reserved)
    assert not set(chosen[0].values()) & set(chosen[1].values())


def test_two_users_starting_concurrently_get_different_ports(tmp_path: Path):
    with _reserved(tmp_path / "ports-of-alice.json", tmp_path) as alice:
        with _reserved(tmp_path / "ports-of-bob.json", tmp_path) as bob:
            assert not set(alice.values()) & set(bob.values())


def test_ports_of_a_deleted_clone_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "is_free", lambda port: True)  # independent of other processes on this machine
    monkeypatch.setattr(ports, "_claim", lambda port: socket.socket())
    gone, here = tmp_path / "gone", tmp_path / "here"
    gone.mkdir(), here.mkdir()
    with _reserved(tmp_path / "ports.json", gone) as first:
        pass
    gone.rmdir()
    with _reserved(tmp_path / "ports.json", here) as second:
        assert second == first


def test_port_override_comes_first_and_must_be_a_number(tmp_path: Path):
    wanted, kept = ports.with_overrides(PREFERRED, {"web": 8401}, {"OOLONG_WEB_PORT": "9000"})
    assert (wanted["web"], kept) == (9000, {})
    with pytest.raises(StackError, match="OOLONG_WEB_PORT='http'"):
        ports.with_overrides(PREFERRED, {}, {"OOLONG_WEB_PORT": "http"})


def test_listening_port_is_not_free():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])
