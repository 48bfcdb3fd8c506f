"""The whole agent as a process, against a scripted control plane over HTTP, with small scripts as jobs."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from gpu_agents.agent import processes
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.terminate_jobs import AgentIsRunning, lock_data_directory, terminate_jobs
from oolong.contracts.agent import Artifact, DesiredAttempt, DesiredJob, ObservedJob
from oolong.contracts.lifecycle import EndReason, JobKind, JobState
from oolong.system.process_handle import descendants, find_process
from tests.support.scripted_control_plane import CREDENTIAL, JOIN_TOKEN, Fault, ScriptedControlPlane
from tests.support.small_jobs import MODULE, ROOT, start_agent

pytestmark = pytest.mark.timeout(300)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


class World:
    def __init__(self, root: Path, control_plane: ScriptedControlPlane) -> None:
        self.server = control_plane
        self.data = DataDirectory(root / "agent")
        self.log = root / "agent.log"
        self.agents: list[subprocess.Popen[bytes]] = []
        self.mark = secrets.token_hex(4)
        self.model = root / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        rows = b'{"row":0}\n'
        self.dataset = Artifact(sha256=hashlib.sha256(rows).hexdigest(), bytes=len(rows), kind="dataset")
        control_plane.artifacts[self.dataset.sha256] = rows

    def start_agent(self) -> subprocess.Popen[bytes]:
        self.agents.append(start_agent(self.server.url, self.data.root, token=JOIN_TOKEN, log=self.log))
        return self.agents[-1]

    def want(
        self, plan: dict[str, dict[str, object]], *, grace: float = 60.0, **changes: object
    ) -> DesiredAttempt:
        """Name one attempt with these jobs in the desired state."""
        jobs = [
            DesiredJob(
                job_id=self.job_id(name), name=name, kind=_kind(name), index=0, slots=["cpu-0"],
                restarts=3 if _kind(name) in (JobKind.ROLLOUT, JobKind.REWARD) else 0, grace_seconds=grace,
            )
            for name in plan
        ]  # fmt: skip
        wanted = DesiredAttempt(
            run_id="run_1", attempt_id="att_1", attempt_number=1, epoch=1, spec={"notes": json.dumps(plan)},
            dataset=self.dataset, evaluation=None, model=None, model_path=str(self.model), resume=None, ports={},
            token="t0ken-of-the-attempt", jobs=jobs,
        )  # fmt: skip
        wanted = msgspec.structs.replace(wanted, **changes)
        self.server.desired = [wanted]
        return wanted

    def stop_jobs(self, *names: str, graces: Mapping[str, float] | None = None) -> None:
        """Ask these jobs to stop, some with less time than before."""
        (attempt,) = self.server.desired
        jobs = [
            msgspec.structs.replace(
                job, stop=True, grace_seconds=(graces or {}).get(job.name, job.grace_seconds)
            )
            if job.name in names
            else job
            for job in attempt.jobs
        ]
        self.server.desired = [msgspec.structs.replace(attempt, jobs=jobs)]

    def job(self, name: str) -> ObservedJob:
        found = self.server.job(self.job_id(name))
        assert found is not None
        return found

    def ended(self, name: str) -> ObservedJob:
        """Wait for its end; the job as it was told then."""
        found: list[ObservedJob] = []

        def has_ended() -> bool:
            told = self.server.job(self.job_id(name))
            found[:] = [told] if told is not None and told.state is JobState.EXITED else []
            return bool(found)

        until(has_ended)
        return found[0]

    def job_id(self, name: str) -> str:
        """Of this test alone: who carries the id of a job is ended with it, on the whole machine."""
        return f"job_{name}_{self.mark}"

    def in_state(self, name: str, state: JobState) -> bool:
        found = self.server.job(self.job_id(name))
        return found is not None and found.state is state and (state is not JobState.RUNNING or found.pid > 0)

    def works(self, name: str) -> bool:
        """The job is up: it wrote something that has arrived."""
        return self.in_state(name, JobState.RUNNING) and bool(self.xs(name))

    def directory(self, name: str, incarnation: int = 0) -> Path:
        return self.data.job("att_1", name, incarnation)

    def supervision(self, name: str) -> Path:
        return self.data.supervision("att_1", name, 0)

    def xs(self, name: str, incarnation: int = 0) -> list[int]:
        lines = self.server.content(self.job_id(name), f"main-{incarnation}.jsonl").splitlines()
        return [json.loads(line)["x"] for line in lines if b'"type":"points"' in line]


def _kind(name: str) -> JobKind:
    return JobKind(name.split("-")[0])


@pytest.fixture
def world(tmp_path: Path, control_plane: ScriptedControlPlane) -> Iterator[World]:
    world = World(tmp_path, control_plane)
    yield world
    for agent in world.agents:
        if agent.poll() is None:
            agent.kill()
        agent.wait(60)
    if world.data.root.exists():
        terminate_jobs(world.data, grace_seconds=0.0)
    print(world.log.read_text() if world.log.exists() else "no agent log")


def test_an_attempt_runs_and_its_end_is_reported_with_final_offsets_then_forgotten(world: World) -> None:
    world.start_agent()
    world.want({"controller": {"points": 20}, "trainer": {"points": 40, "stray": True}})
    trainer = world.ended("trainer")
    assert (trainer.reason, trainer.exit_code) == (EndReason.COMPLETED, 0)
    until(lambda: all(file.shipped == file.bytes for file in world.job("trainer").outbox))
    sizes = {file.file: file.bytes for file in world.job("trainer").outbox}
    assert sizes["main-0.jsonl"] == len(world.server.content(world.job_id("trainer"), "main-0.jsonl")) > 0
    assert world.xs("trainer") == list(range(1, 41))
    assert b"trainer incarnation 0 of attempt 1" in world.server.content(
        world.job_id("trainer"), "output.log#0"
    )
    assert (world.directory("trainer") / "stray").exists()
    assert processes.marked(world.job_id("trainer")) == [], "a daemon of the job survived it"
    world.server.desired = []
    until(lambda: world.server.heartbeats[-1].jobs == [])
    until(lambda: not (world.data.attempt("att_1") / "checkpoints").exists())
    assert (world.supervision("trainer") / "output.log").exists(), "the logs of the newest attempts stay"


def test_files_with_secrets_are_for_the_owner_only(world: World) -> None:
    world.start_agent()
    world.want({"trainer": {}})
    until(lambda: world.in_state("trainer", JobState.RUNNING))
    for path in (world.data.node, world.data.desired):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    attempt = (world.data.attempt("att_1") / "attempt.json").stat()
    own_group = attempt.st_gid == (world.data.attempt("att_1") / "home").stat().st_uid
    assert stat.S_IMODE(attempt.st_mode) == (0o640 if own_group else 0o600)
    environ = Path(f"/proc/{world.job('trainer').pid}/environ").read_bytes()
    assert CREDENTIAL.encode() not in environ and b"t0ken" not in environ


def test_a_waiting_agent_receives_new_work_and_reports_a_death(world: World) -> None:
    """A heartbeat that waits at the server ends here by news alone, never by time."""
    world.server.holds_heartbeats = True
    world.start_agent()
    until(lambda: world.server.held)
    world.want({"trainer": {}})
    until(lambda: world.in_state("trainer", JobState.RUNNING))
    until(lambda: world.server.held)
    os.kill(world.job("trainer").pid, signal.SIGKILL)
    trainer = world.ended("trainer")
    assert (trainer.reason, trainer.exit_code) == (EndReason.TRAINER_CRASHED, -9)


def test_a_killed_agent_finds_its_jobs_again(world: World) -> None:
    agent = world.start_agent()
    world.want({"controller": {}, "trainer": {}})
    until(lambda: world.works("trainer") and world.works("controller"))
    pids = {name: world.job(name).pid for name in ("controller", "trainer")}
    agent.kill()
    agent.wait(60)
    seen = len(world.server.heartbeats)
    world.start_agent()
    until(lambda: len(world.server.heartbeats) > seen and world.xs("trainer"))
    before = max(world.xs("trainer"))
    until(lambda: max(world.xs("trainer")) > before + 20)
    assert {name: world.job(name).pid for name in pids} == pids
    assert world.job("trainer").incarnation == 0
    arrived = world.xs("trainer")
    assert arrived == list(range(1, len(arrived) + 1))
    assert len(world.server.enrolled) == 1, "the credential is kept"


def test_a_job_that_ended_while_no_agent_was_there_is_reported_by_the_next(world: World) -> None:
    agent = world.start_agent()
    world.want({"trainer": {"points": 60, "checkpoint": 60, "holds": 0}})
    until(lambda: world.in_state("trainer", JobState.RUNNING))
    agent.kill()
    agent.wait(60)
    (world.directory("trainer") / "go").touch()
    until(lambda: (world.supervision("trainer") / "exit.json").exists())
    world.start_agent()
    assert world.ended("trainer").reason is EndReason.COMPLETED
    until(lambda: len(world.xs("trainer")) == 60)
    until(lambda: world.server.stored_upload(60) is not None)


def test_a_stop_is_polite_first_and_a_deaf_job_is_killed_after_the_grace_period(world: World) -> None:
    world.start_agent()
    world.want({"controller": {}, "trainer": {"end": "deaf"}})
    until(lambda: world.works("trainer") and world.works("controller"))
    world.stop_jobs("controller", "trainer", graces={"trainer": 0.5})
    controller, trainer = world.ended("controller"), world.ended("trainer")
    assert (controller.reason, controller.exit_code) == (EndReason.STOPPED_BY_USER, 0)
    assert (trainer.reason, trainer.exit_code) == (EndReason.STOPPED_BY_USER, -9)


def test_a_worker_is_restarted_in_place_until_its_restarts_are_used_up(world: World) -> None:
    world.start_agent()
    world.want({"rollout-0": {}})
    for incarnation in range(4):
        until((world.directory("rollout-0", incarnation) / "outbox" / f"main-{incarnation}.jsonl").exists)
        (world.directory("rollout-0", incarnation) / "die").touch()
    assert world.ended("rollout-0").reason is EndReason.ROLLOUT_CRASH_LOOP
    assert "after 3 restarts" in world.job("rollout-0").message
    until(
        lambda: all(
            world.server.content(world.job_id("rollout-0"), f"output.log#{number}") for number in range(4)
        )
    )


def test_restarts_in_place_go_on_while_the_control_plane_is_away(world: World) -> None:
    agent = world.start_agent()
    world.want({"rollout-0": {}})
    until(lambda: world.in_state("rollout-0", JobState.RUNNING))
    world.server.away = True
    agent.kill()
    agent.wait(60)
    world.start_agent()
    os.kill(world.job("rollout-0").pid, signal.SIGKILL)
    until(lambda: (world.directory("rollout-0", 1) / "outbox" / "main-1.jsonl").exists())
    world.server.away = False
    until(lambda: world.job("rollout-0").incarnation == 1)


def test_an_attempt_that_is_not_named_any_more_is_ended(world: World) -> None:
    world.start_agent()
    world.want({"trainer": {}})
    until(lambda: world.in_state("trainer", JobState.RUNNING))
    pid = world.job("trainer").pid
    world.server.desired = []
    until(lambda: find_process(pid) is None)


def test_an_outage_kills_nothing_and_every_line_arrives_afterwards(world: World) -> None:
    world.start_agent()
    world.want({"trainer": {"checkpoint": 50}})
    until(lambda: world.works("trainer"))
    pid = world.job("trainer").pid
    world.server.away = True
    outbox = world.directory("trainer") / "outbox" / "main-0.jsonl"
    until(lambda: outbox.stat().st_size > 20_000)
    world.server.away = False
    size = outbox.stat().st_size
    until(lambda: len(world.server.content(world.job_id("trainer"), "main-0.jsonl")) >= size)
    assert world.job("trainer").pid == pid
    arrived = world.xs("trainer")
    assert arrived == list(range(1, len(arrived) + 1))


def test_a_node_without_contact_ends_its_jobs_although_its_agent_is_dead(world: World) -> None:
    world.server.orphan_ttl_seconds = 2.0
    agent = world.start_agent()
    world.want({"trainer": {}})
    until(  # a machine that stands still is without contact too: then the job has ended before its agent
        lambda: world.in_state("trainer", JobState.RUNNING) or world.in_state("trainer", JobState.EXITED)
    )
    agent.kill()
    agent.wait(60)
    until(lambda: (world.supervision("trainer") / "exit.json").exists())
    world.start_agent()
    assert world.ended("trainer").reason is EndReason.ORPHANED


def test_a_lost_supervisor_loses_its_job_and_leaves_no_process(world: World) -> None:
    world.start_agent()
    world.want({"trainer": {"stray": True}})
    until(
        lambda: (
            world.in_state("trainer", JobState.RUNNING) and (world.directory("trainer") / "stray").exists()
        )
    )
    supervisor = json.loads(world.data.supervisor(world.job_id("trainer")).read_text())
    temporary = world.supervision("trainer") / "tmp"
    assert temporary.is_dir()
    os.kill(supervisor["pid"], signal.SIGKILL)
    assert world.ended("trainer").reason is EndReason.TRAINER_CRASHED
    assert not temporary.exists(), "what the job wrote to its /tmp is left on the disk"
    assert processes.marked(world.job_id("trainer")) == []


@pytest.fixture
def container(world: World) -> Iterator[subprocess.Popen[bytes]]:
    """What process 1 of the agent's image runs; as root in a PID namespace, where it is process 1."""
    agent = [
        sys.executable,
        "-m",
        MODULE,
        world.server.url,
        str(world.data.root),
        JOIN_TOKEN,
        "node",
        "2",
    ]
    init = [
        sys.executable,
        "-m",
        "gpu_agents.agent.node_init",
        "--data-dir",
        str(world.data.root),
        "--grace",
        "60",
    ]
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if os.geteuid() == 0 else []
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        "HOME": str(world.data.root),
    }
    with world.log.open("ab") as log:
        process = subprocess.Popen(
            [*unshare, *init, "--", *agent], cwd=ROOT, env=environment, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    yield process
    process.kill()
    process.wait(60)


def first_of(process: subprocess.Popen[bytes], word: str) -> int | None:
    """The process of this container whose command has the word."""
    for pid in (process.pid, *descendants(process.pid)):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if word in words[:4] and "unshare" not in words[0]:
            return pid
    return None


def test_jobs_of_a_container_outlive_its_agent_and_stop_with_it(
    world: World, container: subprocess.Popen[bytes]
) -> None:
    world.want({"trainer": {}})
    until(lambda: world.works("trainer"))
    pid = world.job("trainer").pid
    agent = first_of(container, MODULE)
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    until(lambda: first_of(container, MODULE) not in (None, agent))
    seen = len(world.xs("trainer"))
    until(lambda: len(world.xs("trainer")) > seen)
    assert world.job("trainer").pid == pid and world.in_state("trainer", JobState.RUNNING)
    agent, init = first_of(container, MODULE), first_of(container, "gpu_agents.agent.node_init")
    assert agent is not None and init is not None
    os.kill(init, signal.SIGHUP)  # a new agent, and the same job
    until(lambda: first_of(container, MODULE) not in (None, agent))
    assert world.in_state("trainer", JobState.RUNNING)
    os.kill(init, signal.SIGTERM)
    assert container.wait(60) == 0
    assert processes.marked(world.job_id("trainer")) == []
    ended = json.loads((world.supervision("trainer") / "exit.json").read_text())
    assert (ended["code"], ended["cause"]) == (0, "stopped"), "it was asked, and had the time to end"


def test_a_revoked_node_ends_its_jobs_and_its_container_and_joins_again_as_a_new_one(
    world: World, container: subprocess.Popen[bytes]
) -> None:
    world.want({"trainer": {}, "rollout-0": {}}, grace=600.0)
    until(lambda: world.works("trainer") and world.works("rollout-0"))
    assert len(world.server.enrolled) == 1
    world.server.revoked = True
    assert container.wait(60) == 3, "process 1 does not start the agent again"
    for name in ("trainer", "rollout-0"):
        assert processes.marked(world.job_id(name)) == []
        ended = json.loads((world.supervision(name) / "exit.json").read_text())
        assert ended["cause"] == "stopped", "asked, and not killed"
    assert "node_revoked" in world.log.read_text()
    assert not world.data.node.exists() and not world.data.desired.exists()
    assert list(world.data.spool.iterdir()) == []
    before = len(world.server.heartbeats)
    world.server.revoked, world.server.desired = False, []
    world.start_agent()
    until(lambda: len(world.server.heartbeats) > before)
    assert len(world.server.enrolled) == 2
    assert world.server.heartbeats[-1].jobs == [], "nothing of before is begun again or reported"


def test_a_taken_port_is_named(world: World) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        world.start_agent()
        world.want({"trainer": {}}, ports={"controller": port})
        assert world.ended("trainer").reason is EndReason.PREPARATION_FAILED
    assert f"port {port} (controller)" in world.job("trainer").message


def test_an_input_that_the_store_does_not_have_fails_the_preparation(world: World) -> None:
    world.start_agent()
    world.want({"trainer": {}}, dataset=Artifact(sha256="b" * 64, bytes=5, kind="dataset"))
    assert world.ended("trainer").reason is EndReason.PREPARATION_FAILED


def test_a_model_path_without_a_model_is_named(world: World) -> None:
    world.start_agent()
    world.want({"trainer": {}}, model_path="/nowhere/model")
    assert world.ended("trainer").reason is EndReason.MODEL_INVALID
    assert "/nowhere/model" in world.job("trainer").message


def test_a_checkpoint_goes_up_and_comes_back_as_the_next_attempts_resume(world: World) -> None:
    world.start_agent()
    world.want({"trainer": {"points": 30, "checkpoint": 30}})
    until(lambda: world.server.stored_upload(30) is not None)
    archive = world.server.stored_upload(30)
    assert archive is not None
    artifact = Artifact(sha256=hashlib.sha256(archive).hexdigest(), bytes=len(archive), kind="checkpoint")
    world.server.artifacts[artifact.sha256] = archive
    world.server.desired = []
    until(lambda: world.server.heartbeats[-1].jobs == [])
    world.server.files.clear()
    world.want({"trainer": {"points": 50}}, attempt_id="att_2", attempt_number=2, resume=artifact)
    world.ended("trainer")
    until(lambda: len(world.xs("trainer")) == 20)
    assert world.xs("trainer") == list(range(31, 51))


def test_the_agent_leaves_its_jobs_and_end_jobs_ends_them(world: World) -> None:
    agent = world.start_agent()
    world.want({"controller": {}, "trainer": {"stray": True}})
    until(lambda: world.works("trainer") and world.works("controller"))
    pids = [world.job(name).pid for name in ("controller", "trainer")]
    with pytest.raises(AgentIsRunning), lock_data_directory(world.data):
        pass
    agent.terminate()
    assert agent.wait(60) == 0
    assert all(find_process(pid) is not None for pid in pids)
    with lock_data_directory(world.data):
        ended = terminate_jobs(world.data, grace_seconds=60.0)
    assert (ended.stopped, ended.killed) == (2, 0)
    assert all(find_process(pid) is None for pid in pids)
    assert processes.marked(world.job_id("trainer")) == []
    world.start_agent()
    assert world.ended("trainer").reason is EndReason.NODE_LOST, "the user stopped nothing"


def test_two_agents_never_serve_one_directory(world: World) -> None:
    world.start_agent()
    until(lambda: world.server.heartbeats)
    assert world.start_agent().wait(60) != 0
    assert "another agent serves" in world.log.read_text()


# --- secrets of jobs

KEY = "k3y-of-the-trainer"


def want_secret(world: World, **changes: object) -> None:
    """A trainer that is to have API_KEY and tells it to everybody, and a controller that looks for it too."""
    plan: dict[str, dict[str, object]] = {"controller": {"tells": "API_KEY"}, "trainer": {"tells": "API_KEY"}}
    attempt = world.want({name: {**told, **changes} for name, told in plan.items()})
    jobs = [
        msgspec.structs.replace(job, secrets=["API_KEY"] if job.name == "trainer" else [])
        for job in attempt.jobs
    ]
    world.server.desired = [msgspec.structs.replace(attempt, jobs=jobs)]


def asked_for_secrets(world: World) -> list[str]:
    return [request for request in world.server.requests if request.endswith("/secrets 200")]


def test_a_secret_reaches_the_job_that_is_named_and_stays_out_of_everything_that_is_written(
    world: World,
) -> None:
    world.server.secrets[world.job_id("trainer")] = {"API_KEY": KEY}
    agent = world.start_agent()
    want_secret(world, points=3)
    trainer, controller = world.ended("trainer"), world.ended("controller")
    until(lambda: all(file.bytes == file.shipped for file in world.job("trainer").outbox))
    agent.kill()  # nobody moves its files while they are looked through
    agent.wait(60)
    told = {name: (world.directory(name) / "told").read_text() for name in ("controller", "trainer")}
    assert told == {
        "controller": hashlib.sha256(b"nothing").hexdigest(), "trainer": hashlib.sha256(KEY.encode()).hexdigest()
    }  # fmt: skip
    shipped = world.server.content(world.job_id("trainer"), "output.log#0") + world.server.content(
        world.job_id("trainer"), "main-0.jsonl"
    )
    assert shipped.count(b"[secret API_KEY]") == 2
    assert trainer.message == "told [secret API_KEY]"
    assert controller.message == "told nothing"
    assert asked_for_secrets(world) == [f"POST /api/v1/agent/jobs/{world.job_id('trainer')}/secrets 200"]
    for file in [world.log, *world.data.root.rglob("*")]:
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
    arrived = b"".join([*world.server.files.values(), msgspec.json.encode(world.server.heartbeats)])
    assert KEY.encode() not in arrived


def test_an_adopted_job_is_given_nothing_anew_and_its_log_stays_clean(world: World) -> None:
    world.server.secrets[world.job_id("trainer")] = {"API_KEY": KEY}
    agent = world.start_agent()
    want_secret(world)
    until(lambda: world.works("trainer"))
    agent.kill()
    agent.wait(60)
    del world.server.secrets[world.job_id("trainer")]
    world.start_agent()
    until(lambda: len(world.server.heartbeats) and len(world.xs("trainer")) > 20)
    world.stop_jobs("trainer", "controller")
    assert world.ended("trainer").message == "told [secret API_KEY]"
    assert len(asked_for_secrets(world)) == 1


def test_a_job_waits_for_secrets_that_cannot_be_asked_for_and_each_restart_takes_the_newest(
    world: World,
) -> None:
    world.server.secrets[world.job_id("rollout")] = {"API_KEY": KEY}
    world.server.faults += [Fault("/secrets", "refuse"), Fault("/secrets", "lose_answer")]
    world.start_agent()
    attempt = world.want({"rollout": {"tells": "API_KEY"}})
    world.server.desired = [
        msgspec.structs.replace(attempt, jobs=[msgspec.structs.replace(attempt.jobs[0], secrets=["API_KEY"])])
    ]
    until(lambda: world.works("rollout"))
    world.server.secrets[world.job_id("rollout")] = {"API_KEY": "a rotated value"}
    (world.directory("rollout") / "die").touch()
    until(lambda: world.xs("rollout", 1))
    told = (world.directory("rollout", 1) / "told").read_text()
    assert told == hashlib.sha256(b"a rotated value").hexdigest()
    del world.server.secrets[world.job_id("rollout")]
    (world.directory("rollout", 1) / "die").touch()
    assert world.ended("rollout").reason is EndReason.SECRET_MISSING


def test_a_job_whose_secret_is_gone_is_not_started(world: World) -> None:
    world.start_agent()
    want_secret(world)
    trainer = world.ended("trainer")
    assert (trainer.reason, trainer.message) == (EndReason.SECRET_MISSING, "secret_missing")
    assert not (world.directory("trainer") / "told").exists()
