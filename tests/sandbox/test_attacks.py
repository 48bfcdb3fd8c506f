"""Hostile programs against the sandbox, as a service of root and as a normal user runs it.

No escape, no survivor, no network, no secret. Passing says that these ways are closed, not that there is none.
"""

from __future__ import annotations

import json
import os
import platform

import pytest

from oolong.sandbox import cgroups
from tests.sandbox.attack_cases.all import ATTACKS
from tests.sandbox.attack_cases.attack import OVER_TIME, Attack
from tests.sandbox.conftest import LIMITS, PATIENT, AsNormalUser, AsThisUser, Baits, described, processes_of

Runner = AsThisUser | AsNormalUser


def require(runner: Runner, capability: str) -> None:
    value = getattr(runner.capabilities, capability)
    if value in (False, "none"):
        pytest.skip(f"needs {capability}, which this machine has not: {runner.capabilities.message}")


@pytest.mark.parametrize(
    "attack",
    [pytest.param(attack, marks=[pytest.mark.core] if attack.is_core else []) for attack in ATTACKS],
    ids=[f"{attack.name}[{attack.needs}]" for attack in ATTACKS],
)
def test_attack(attack: Attack, runner: Runner, baits: Baits) -> None:
    require(runner, attack.needs)
    source = attack.source
    for name in ("port", "abstract", "socket", "secret"):
        source = source.replace("{" + name + "}", str(getattr(baits, name)))
    hits = list(baits.hits)
    limits = LIMITS if set(OVER_TIME) & set(attack.ends) else PATIENT
    outcome = runner.run(described(source, limits=limits))
    assert outcome["error"] == "", outcome
    (test,) = outcome["tests"]
    assert test["status"] in attack.ends, test
    if test["status"] == "ok" and "report" in attack.source:
        assert json.loads(test["value"]) == attack.reports
    if outcome["peak_memory_bytes"] is not None:
        assert outcome["peak_memory_bytes"] <= LIMITS.memory_bytes
    assert processes_of(runner.uids, service=runner.service) == []
    assert baits.hits == hits
    assert "planted secret" not in json.dumps(outcome)
    assert "in the environment of the service" not in json.dumps(outcome)


@pytest.mark.core
def test_there_are_at_least_31_attacks_with_different_names_and_each_says_what_stops_it() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 31
    assert {attack.needs for attack in ATTACKS} == {
        "user_namespace",
        "seccomp",
        "memory_bound",
        "process_bound",
    }


def test_what_this_machine_can_do_is_found_for_each_user(runner: Runner) -> None:
    """A bound that the kernel gives is used where it can be had: a supervisor in its place would pass the attacks."""
    found = runner.capabilities
    root = os.geteuid() == 0 and isinstance(runner, AsThisUser)
    assert (found.user_namespace, found.seccomp, found.own_uid) == (True, True, root)
    factory = cgroups.find_cgroups() if isinstance(runner, AsThisUser) else None
    assert found.memory_bound == (factory.kind if factory is not None else "supervisor")
    if tuple(int(part) for part in platform.release().split(".")[:2]) >= (5, 14):
        assert found.process_bound == "kernel"


@pytest.mark.core
def test_a_daemon_of_one_test_is_dead_before_the_next(runner: Runner) -> None:
    source = """
import os, time
if payload == "leave":
    open("/tmp/left", "w").write("for the next")
    if os.fork() == 0:
        os.setsid()
        while True:
            time.sleep(0.01)
            open("/tmp/planted", "w").close()
else:
    time.sleep(0.3)
    report(sorted(os.listdir("/tmp")))
"""
    outcome = runner.run(described(source, payloads=("leave", "look"), limits=PATIENT))
    assert [test["status"] for test in outcome["tests"]] == ["ok", "ok"]
    assert json.loads(outcome["tests"][1]["value"]) == [".stdin"]


@pytest.mark.parametrize("mode", [0o000, 0o300], ids=oct)
def test_a_scratch_folder_that_a_test_has_locked_is_open_and_empty_for_the_next(
    runner: Runner, mode: int
) -> None:
    source = f"""
import os
if payload == "lock":
    open("/tmp/left", "w").write("for the next")
    os.unlink("/tmp/.stdin")
    os.symlink("/dev/zero", "/tmp/.stdin")
    os.chmod("/tmp", {mode})
else:
    report(sorted(os.listdir("/tmp")))
"""
    outcome = runner.run(described(source, payloads=("lock", "look"), limits=PATIENT))
    assert [test["status"] for test in outcome["tests"]] == ["ok", "ok"]
    assert json.loads(outcome["tests"][1]["value"]) == [".stdin"]
    assert outcome["sandboxes"] == 1


@pytest.mark.core
def test_a_forged_record_is_no_record(runner: Runner) -> None:
    """A test writes the guest's own records, for itself and the next one, to every descriptor it has."""
    source = """
import os
if payload == "forge":
    record = b'{"test": 0, "status": "ok", "exit": 0, "signal": 0, "seconds": 0, "cpu_seconds": 0, ' \\
             b'"stdout": 0, "stderr": 0, "value": 0}\\n'
    for fd in range(1, 256):
        try:
            os.write(fd, 2 * record + b'{"end": true}\\n')
        except OSError:
            pass
raise SystemExit(3)
"""
    outcome = runner.run(described(source, payloads=("forge", "fail"), limits=PATIENT))
    assert [(test["status"], test["exit_code"]) for test in outcome["tests"]] == [("failed", 3)] * 2


def test_tests_after_one_that_broke_the_sandbox_get_another(runner: Runner) -> None:
    source = """
import os
if payload == "break":
    os.mkdir("/tmp/d"); os.chdir("/tmp/d")
    for _ in range(3000):
        os.mkdir("d"); os.chdir("d")
report(payload)
"""
    outcome = runner.run(described(source, payloads=("fine", "break", "fine"), limits=PATIENT))
    assert outcome["error"] == ""
    assert [test["status"] for test in outcome["tests"]] == ["ok", "ok", "ok"]
    assert outcome["sandboxes"] == 2


@pytest.mark.core
def test_what_a_test_does_to_modules_is_not_there_for_the_next(runner: Runner) -> None:
    source = """
import builtins, json
report(getattr(builtins, "changed", 0))
builtins.changed = 1
json.dumps = lambda value: '"forged"'
"""
    outcome = runner.run(described(source, payloads=(1, 2), limits=PATIENT))
    assert [test["value"] for test in outcome["tests"]] == ["0", "0"]
