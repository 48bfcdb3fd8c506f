"""`manage.py up`, `ps` and `down` with the real control plane and agent."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from oolong.system.process_handle import find_process
from tests.support.clone import Clone, running_clone
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def clone(checkout: Path) -> Iterator[Clone]:
    with running_clone(checkout) as made:
        yield made


def _dead(pid: int) -> bool:
    return find_process(pid) is None


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _dead(pid), f"process {pid} is dead")


def test_up_prints_a_login_link_that_works_once(clone: Clone) -> None:
    out = clone.manage("up")
    link = re.search(r"http://127\.0\.0\.1:\d+/login/\S+", out)
    assert link, out
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(link[0], timeout=60):
        pass
    url = link[0].split("/login/")[0]
    with opener.open(url + "/api/v1/me", timeout=60) as response:
        assert json.load(response)["user"]["username"] == "admin"
    second = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with pytest.raises(urllib.error.HTTPError):
        with second.open(link[0], timeout=60):
            second.open(url + "/api/v1/me", timeout=60)


def test_a_second_up_starts_nothing(clone: Clone) -> None:
    before = clone.pids()
    assert "Already running" in clone.manage("up")
    assert clone.pids() == before


def test_agent_process_has_no_control_plane_secret(clone: Clone) -> None:
    environment = Path(f"/proc/{clone.pids()['agent']}/environ").read_bytes()
    for name in (b"SECRET_KEY", b"DATABASE_URL", b"REDIS_URL"):
        assert name not in environment


def test_up_adopts_all_services_after_kill_9_of_the_supervisor(clone: Clone) -> None:
    before = clone.pids()
    _kill(before.pop("supervisor"))
    clone.manage("up")
    after = clone.pids()
    assert after.pop("supervisor")
    assert after == before


def test_down_stops_services_and_jobs_after_kill_9_of_the_supervisor(clone: Clone) -> None:
    services = clone.pids()
    _kill(services["supervisor"])
    supervisors = clone.agent_data() / "supervisors"
    supervisors.mkdir(exist_ok=True)
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    found = find_process(job.pid)
    record = {
        "job_id": "job_left",
        "incarnation": 0,
        "directory": str(clone.root),
        "boot_id": found.boot_id,
        "pid": job.pid,
        "start_ticks": found.start_ticks,
        "job_pid": job.pid,
        "pgid": job.pid,
    }
    (supervisors / "job_left.json").write_text(json.dumps(record))
    try:
        assert "job_left" in clone.manage("ps")
        clone.manage("down")
        assert job.wait(timeout=60) != 0
        assert all(_dead(pid) for pid in services.values())
    finally:
        job.kill()
        job.wait()
    assert "running" not in clone.manage("ps")


def test_data_and_ports_survive_a_restart(clone: Clone) -> None:
    before = json.loads((clone.root / "var" / "stack.json").read_text())["ports"]
    clone.manage("up")
    assert json.loads((clone.root / "var" / "stack.json").read_text())["ports"] == before
    status = clone.manage(
        "shell", "-c", "from control_plane.accounts.models import User; print(User.objects.count())"
    )
    assert status.strip().splitlines()[-1] == "1"
    clone.manage("down")
