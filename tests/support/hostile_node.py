"""A node with two attempts: one that holds secrets, one whose loss is hostile. `python -m tests.support.hostile_node`

Everything is real but torch: the probe of the agent, the attempt's files, the supervisor, the view. It prints what it
saw as one line of JSON. Run as root each attempt has a uid; run as another user it is in a user namespace.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from gpu_agents.agent import launch, processes
from gpu_agents.agent.isolation.node import NodeIsolation, detect
from gpu_agents.agent.job_supervisor import KILL
from gpu_agents.agent.records import JobRecord, SupervisorRecord, read_json, write_json
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from oolong.contracts.agent import Artifact, DesiredAttempt, JobIsolation
from oolong.contracts.attempt import AttemptFile, read_attempt
from oolong.contracts.lifecycle import JobKind
from oolong.system.process_handle import find_process, send_signal

ROOT = Path(__file__).resolve().parents[2]
SECRET = "the-secret-of-the-other-attempt"
CREDENTIAL = "the-credential-of-the-node"
SECONDS = 60.0


def main(folder: Path, wanted: str) -> dict[str, object]:
    os.umask(0o077)  # as an agent may have it
    data = DataDirectory(folder / "node")
    data.create()
    write_json(data.node, {"credential": CREDENTIAL})
    for name in ("secrets.json", "stack.env"):
        (folder / name).write_text(SECRET)
        (folder / name).chmod(0o600)
    settings = AgentSettings(
        server="http://127.0.0.1", data_directory=data.root, node_python=sys.executable, name="node",
        job_paths=(str(ROOT / "tests"),), job_isolation=wanted,
    )  # fmt: skip
    isolation = detect(settings, data)
    if isolation.kind is JobIsolation.NONE and (wanted != "none" or os.geteuid() == 0):
        return {"isolation": "none", "reason": isolation.reason}
    os.environ["PLANTED"] = CREDENTIAL
    victim = start(data, isolation, "att_victim", "import time; time.sleep(600)", secrets={"TOKEN": SECRET})
    other = data.cache / "other"
    other.mkdir()
    (other / "content").write_text(SECRET)
    own = data.attempt("att_hostile")
    supervision = data.supervision("att_hostile", "trainer", 0)
    targets = {
        "secret_files": [
            str(path)
            for path in (
                data.node, other / "content", folder / "secrets.json", folder / "stack.env",
                data.attempt("att_victim") / "attempt.json", data.job("att_victim", "trainer", 0) / "job.json",
                "/etc/shadow", Path.home() / ".bashrc",
            )
        ],
        "secret_folders": [str(path) for path in (data.spool, data.supervisors, data.attempt("att_victim"))],
        "kept_files": [
            str(path)
            for path in (
                own / "attempt.json", own / "sources" / "loss.py", supervision / "order.json",
                supervision / "output.log", data.contact, data.supervisor(job_id("att_hostile")), other / "content",
                data.attempt("att_victim") / "attempt.json",
            )
        ],
        "kept_folders": [
            str(path)
            for path in (
                own, supervision, own / "jobs", data.attempts, data.cache, data.attempt("att_victim") / "weights",
                ROOT / "gpu_agents", sys.prefix, "/usr",
            )
        ],
        "secret_words": [SECRET, CREDENTIAL],
    }  # fmt: skip
    pids = {"the agent": os.getpid(), "its victim": victim.job_pid, "the victim's supervisor": victim.pid}
    loss = (ROOT / "tests" / "support" / "hostile_loss.py").read_text()
    hostile = start(
        data, isolation, "att_hostile", "import sys, runpy; runpy.run_path(sys.argv[1], run_name='__main__')",
        loss=loss, samples=json.dumps({"targets": targets, "pids": pids}),
    )  # fmt: skip
    wait(lambda: (supervision / "exit.json").exists())
    report: dict[str, object] = {
        "isolation": isolation.kind.value,
        "reason": isolation.reason,
        "uids": [os.stat(data.attempt(name) / "home").st_uid for name in ("att_victim", "att_hostile")],
        "exit": json.loads((supervision / "exit.json").read_text())["code"],
        "output": next(supervision.glob("output.log*")).read_text(),
        "victim_lives": find_process(victim.job_pid) is not None,
        "left_behind": processes.marked(hostile.job_id),
        "temporary_left": (supervision / "tmp").exists(),
    }
    send_signal(victim.pid, KILL)
    wait(lambda: (data.supervision("att_victim", "trainer", 0) / "exit.json").exists())
    for name in ("att_victim", "att_hostile"):
        isolation.remove_attempt(data.attempt(name))
    return {**report, "attempts_left": [path.name for path in data.attempts.iterdir()]}


def start(
    data: DataDirectory,
    isolation: NodeIsolation,
    attempt_id: str,
    program: str,
    *,
    secrets: dict[str, str] | None = None,
    **sources: str,
) -> SupervisorRecord:
    """Prepare an attempt and start its trainer, as the agent does."""
    cached = {}
    for kind, text in {"dataset": "{}", **sources}.items():
        entry = data.cache / hashlib.sha256(text.encode()).hexdigest()
        entry.mkdir(exist_ok=True, mode=0o755)
        cached[kind] = entry / "content"
        cached[kind].write_text(text)
    model = data.root.parent / "model"
    model.mkdir(exist_ok=True, mode=0o755)
    inputs = launch.InputPaths(
        dataset_file=cached["dataset"], model_directory=model,
        source_files={kind: path for kind, path in cached.items() if kind != "dataset"},
    )  # fmt: skip
    desired = DesiredAttempt(
        run_id="run_1", attempt_id=attempt_id, attempt_number=1, epoch=1, spec={}, evaluation=None, model=None,
        dataset=Artifact(sha256="0" * 64, bytes=2, kind="dataset"), model_path="", resume=None, ports={},
        token=SECRET if attempt_id == "att_victim" else "own", jobs=[],
    )  # fmt: skip
    uid = isolation.uid_for(data.attempt(attempt_id))
    file = launch.write_attempt(
        data, desired, inputs, node_python=sys.executable, device="cpu", uid=uid
    )  # fmt: skip
    record = JobRecord(
        job_id=job_id(attempt_id), run_id="run_1", attempt_id=attempt_id, epoch=1, name="trainer",
        kind=JobKind.TRAINER, index=0, slots=[], grace_seconds=5.0,
    )  # fmt: skip
    attempt: AttemptFile = read_attempt(file)
    launch.start(
        data, record, attempt=attempt, device="cpu", orphan_ttl_seconds=600.0, isolation=isolation,
        command=lambda place: [sys.executable, "-c", program, place.attempt.source_files.get("loss", "")],
        secrets=secrets or {},
    )  # fmt: skip
    return read_json(data.supervisor(record.job_id), SupervisorRecord)


def job_id(attempt_id: str) -> str:
    """Of this process alone: who carries the id of a job is ended with it, on the whole machine."""
    return f"job_{attempt_id}_{os.getpid()}"


def wait(ready: object) -> None:
    assert callable(ready)
    deadline = time.monotonic() + SECONDS
    while not ready():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
