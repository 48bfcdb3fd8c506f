"""One job of the tests. What it does stands in the run's notes, by job name: {"trainer": {"points": 100, ...}}.

points      points it writes, one every `every` seconds (default: until it is stopped)
holds       the first attempt waits after so many points until the file `go` lies in its folder
finishes    without `points`: complete, with a final checkpoint, once the file `finish` lies in its folder
saves       commit a checkpoint when it has to stop, as a trainer does
checkpoint  commit a checkpoint after every so many points, besides the final one; of a trainer on several nodes, only
            the one with rank 0 commits
resume      go on after the checkpoint it is handed
end         completed (default) | died (exit 3, no result) | deaf (ignores SIGTERM)
tells       print this variable in two pieces, say it in a note and in the result, and its SHA-256 in the file `told`
stray       leave a daemon behind
publishes   serve a version of a model to other nodes, as a controller does
fetches     fetch that version, as an engine's worker does, and note where it is and the SHA-256 of its file
evaluation  scores of the prompts of a closing evaluation, a digit 0 or 1 each: "1101"
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

import msgspec

from gpu_agents.rollout.controller.weight_server import WeightServer
from gpu_agents.rollout.worker.weight_fetcher import WeightFetcher
from oolong.contracts.attempt import AttemptFile, JobResult, read_attempt, read_job, write_result
from oolong.contracts.evaluation import PROMPT_SCORES, PromptScores, prompt_keys
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.telemetry import CheckpointLine, Note, Outbox, Points, StateSnapshot
from oolong.system.pinned_tls import client_context
from tests.unit.rollout.model_files import publish


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempt", type=Path)
    parser.add_argument("--job", type=Path)
    options = parser.parse_args()
    attempt, job = read_attempt(options.attempt), read_job(options.job)
    plan = json.loads(str(attempt.spec.get("notes") or "{}")).get(job.name, {})
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = plan.get("end") != "deaf"

    signal.signal(signal.SIGTERM, stop)
    print(f"{job.name} incarnation {job.incarnation} of attempt {attempt.attempt_number}", flush=True)
    if plan.get("stray"):
        leave_a_daemon(Path(options.job, "stray"))

    outbox = Outbox(options.job, job.incarnation)
    told = os.environ.get(plan.get("tells", ""), "nothing")
    if "tells" in plan:
        for piece in (told[: len(told) // 2], told[len(told) // 2 :] + "\n"):
            print(piece, end="", flush=True)
        outbox.write(Note(kind="told", message=f"it is {told}"))
        Path(options.job, "told").write_text(hashlib.sha256(told.encode()).hexdigest())
    if plan.get("publishes"):
        serve_weights(attempt)
    if plan.get("fetches"):
        outbox.write(Note(kind="fetched", message=fetch_weights(attempt)))
    x = resumed_at(attempt.resume_directory)
    points = plan.get("points")
    has_rank0 = job.kind is JobKind.TRAINER and (attempt.gang is None or attempt.gang.node_rank == 0)
    while not stopped and (points is None or x < points):
        if x == plan.get("holds") and attempt.attempt_number == 1 and not Path(options.job, "go").exists():
            time.sleep(0.02)
            continue
        time.sleep(plan.get("every", 0.02))
        if Path(options.job, "die").exists():
            os.abort()
        x += 1
        if plan.get("finishes") and Path(options.job, "finish").exists():
            points = x
        outbox.write(Points(axis="step", x=x, values={"reward/mean": x / 1000}))
        due = x == points or (plan.get("checkpoint") and x % plan["checkpoint"] == 0)
        if due and has_rank0:
            if x == points and "evaluation" in plan:
                evaluate(outbox, plan["evaluation"], version=x)
            commit(outbox, attempt.checkpoints_directory, x, final=x == points)
    if plan.get("end") == "died":
        return 3
    if stopped and plan.get("saves") and has_rank0:
        commit(outbox, attempt.checkpoints_directory, x, final=False)
    reason = EndReason.STOPPED_BY_USER if stopped else EndReason.COMPLETED
    write_result(options.job, JobResult(reason=reason, message=f"told {told}" if "tells" in plan else ""))
    return 0


def serve_weights(attempt: AttemptFile) -> None:
    assert attempt.listener is not None
    publish(attempt.weights_directory, 1)
    WeightServer(attempt.weights_directory, token=attempt.token).start(attempt.listener)


def fetch_weights(attempt: AttemptFile) -> str:
    """The manifest's hash comes with the announcement; here it is asked for first."""
    name = "v00000001"
    url, headers = f"{attempt.weights_url}/{name}/manifest.json", {"Authorization": f"Bearer {attempt.token}"}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, context=client_context(attempt.certificate), timeout=30) as reply:
        digest = hashlib.sha256(reply.read()).hexdigest()
    fetcher = WeightFetcher(
        url=attempt.weights_url, token=attempt.token, certificate=attempt.certificate,
        directory=attempt.weights_directory,
    )  # fmt: skip

    async def fetch() -> str:
        weights = PublishedWeights(version=1, directory=f"/elsewhere/{name}", manifest_sha256=digest)
        async with fetcher.hold(weights) as local:
            await fetcher.close()
            content = Path(local.directory, "model.safetensors").read_bytes()
            return f"{local.directory} {hashlib.sha256(content).hexdigest()}"

    return asyncio.run(fetch())


def evaluate(outbox: Outbox, digits: str, *, version: int) -> None:
    """What the controller of a real run writes: the mean as a metric, and the scores by prompt as a document."""
    scores = [float(digit) for digit in digits]
    outbox.write(Points(axis="step", x=version, values={"eval/accuracy": sum(scores) / len(scores)}))
    keys = prompt_keys((f"prompt {number}", "") for number in range(len(scores)))
    by_prompt = PromptScores(
        label="end", version=version, success_score=1.0, samples=0, prompts=keys, right=scores, greedy=scores
    )
    outbox.write(StateSnapshot(name=PROMPT_SCORES, value=msgspec.to_builtins(by_prompt)))


def leave_a_daemon(told: Path) -> None:
    """One that is deaf; its pid stands in the file when this returns."""
    here, there = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        told.write_text(str(os.getpid()))
        os.write(there, b".")
        time.sleep(600)
        os._exit(0)
    os.read(here, 1)


def commit(outbox: Outbox, directory: Path, step: int, *, final: bool) -> None:
    target = directory / f"step-{step:08d}"
    if target.exists():
        return
    building = directory / f".tmp-{step}"
    (building / "hf").mkdir(parents=True)
    (building / "hf" / "config.json").write_text("{}")
    (building / "hf" / "model.safetensors").write_bytes(bytes([step % 256]) * 100_000)
    (building / "trainer.json").write_text(json.dumps({"step": step}))
    manifest = json.dumps({"step": step}).encode()
    (building / "MANIFEST.json").write_bytes(manifest)
    building.rename(target)
    outbox.write(
        CheckpointLine(
            step=step,
            directory=str(target),
            manifest_sha256=hashlib.sha256(manifest).hexdigest(),
            bytes=sum(path.stat().st_size for path in target.rglob("*") if path.is_file()),
            final=final,
        )
    )


def resumed_at(directory: str | None) -> int:
    return int(json.loads(Path(directory, "trainer.json").read_text())["step"]) if directory else 0


if __name__ == "__main__":
    sys.exit(main())
