"""What holds for every background job: a lost machine or a killed process is tried again, a crash is not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from control_plane.assets.background import runner
from control_plane.assets.background.runner import MOST_TRIES, SILENCE, TOUCH_INTERVAL, job_folder
from control_plane.assets.base_models import model_check_services
from control_plane.assets.base_models.model_check_services import advance_model_checks
from control_plane.assets.datasets import measurement_services, validation_services
from control_plane.assets.datasets.measurement_services import advance_measurements
from control_plane.assets.datasets.validation_services import advance_validations
from control_plane.assets.models import DatasetMeasurement, DatasetValidation, ModelCheck
from tests.support.model_files import archive, files

SLEEPS = "import time; time.sleep(3600)"
DIES_WITH_WORDS = "raise SystemExit('the disk is full')"
PAST_SILENCE = (SILENCE + timedelta(seconds=1)).total_seconds()


@dataclass
class Job:
    """A background job of one kind that waits, and what moves it."""

    rows: Any  # the manager of its model
    advance: Callable[..., None]
    services: Any
    message: Callable[[], str]  # as the API shows it
    clock: Any

    @property
    def row(self) -> Any:
        return self.rows.get()

    def tick(self, host: str, *, seconds: float = 0, starts: bool = True) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runner, "socket", SimpleNamespace(gethostname=lambda: host))
            if not starts:
                patch.setattr(self.services, "AT_ONCE", 0)
            self.advance(now=self.clock.forward(seconds))
        return self.row


def kill(pid: int) -> None:
    """Kill a process as a restart of its machine would, and wait until it is gone."""
    os.killpg(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)], timeout=60)


def validation(alice: Any, clock: Any) -> Job:
    upload = alice.upload(b'{"q": "1", "a": "1"}\n')
    body = {"upload_id": upload, "mapping": {"prompt_column": "q", "answer_column": "a"}}
    path = f"/dataset-validations/{alice.post('/dataset-validations', body).json()['id']}"
    rows = DatasetValidation.objects.filter(pk=path.rpartition("/")[2])
    return Job(
        rows, advance_validations, validation_services, lambda: alice.get(path).json()["message"], clock
    )


def measurement(alice: Any, clock: Any) -> Job:
    assert alice.model("tiny", archive(files())).json()["state"] == "READY"
    version = alice.dataset("rows", [{"question": "a", "answer": 1, "split": "train"}]).json()["id"]
    path = f"/dataset-versions/{version}/statistics"
    assert alice.post(path, {"model": "tiny"}).status_code == 202

    def message() -> str:
        return str(alice.get(path).json()["data"][0]["message"])

    return Job(DatasetMeasurement.objects, advance_measurements, measurement_services, message, clock)


def model_check(alice: Any, clock: Any) -> Job:
    upload = alice.upload(archive(files()), "model")
    path = f"/models/{alice.post('/models', {'name': 'm', 'upload_id': upload}).json()['id']}"

    def message() -> str:
        return str(alice.get(path).json()["errors"][0]["message"])

    checks = ModelCheck.objects.filter(model_id=path.rpartition("/")[2])
    return Job(checks, advance_model_checks, model_check_services, message, clock)


@pytest.fixture(params=[validation, measurement, model_check], ids=lambda kind: kind.__name__)
def job(request: pytest.FixtureRequest, alice: Any, clock: Any, quick_validations: None, process: Any) -> Job:
    waiting: Job = request.param(alice, clock)
    return waiting


def test_a_lost_machine_gives_its_job_to_another_one(job: Job, process: Any) -> None:
    process(SLEEPS)
    first = job.tick("one")
    assert (first.state, first.host, first.tries) == ("RUNNING", "one", 1)
    assert job.tick("two", seconds=60).host == "one", "it may still be alive"
    second = job.tick("two", seconds=PAST_SILENCE)
    assert (second.state, second.host, second.tries) == ("RUNNING", "two", 2)
    assert second.started_at == job.clock.now and job_folder(second) != job_folder(first)
    kill(first.pid)
    kill(second.pid)


def test_a_machine_that_reports_its_process_keeps_its_job(job: Job, process: Any) -> None:
    process(SLEEPS)
    job.tick("one")
    for _ in range(3):
        touched = job.tick("one", seconds=SILENCE.total_seconds() - 1)
        assert (touched.touched_at, touched.tries) == (job.clock.now, 1)
        assert job.tick("two", seconds=TOUCH_INTERVAL.total_seconds()).host == "one"
    kill(job.row.pid)


def test_a_job_that_loses_every_machine_fails_with_the_reason(job: Job, process: Any) -> None:
    process(SLEEPS)
    pids = [job.tick("0").pid]
    for number in range(1, MOST_TRIES):
        pids.append(job.tick(str(number), seconds=PAST_SILENCE).pid)
    assert job.row.tries == MOST_TRIES
    ended = job.tick("last", seconds=PAST_SILENCE)
    assert ended.ended_at == job.clock.now
    assert f"{MOST_TRIES} tries ended without a result" in job.message()
    for pid in pids:
        kill(pid)


def test_a_process_killed_without_a_word_is_started_again(job: Job, process: Any) -> None:
    """As by a restart of its machine under the same name, or for want of memory."""
    process(SLEEPS)
    for tries in range(1, MOST_TRIES + 1):
        running = job.tick("one")
        assert (running.state, running.tries) == ("RUNNING", tries)
        kill(running.pid)
    assert job.tick("one").ended_at is not None
    assert "its process was killed" in job.message()
    assert not job_folder(job.row).exists()


def test_a_process_that_crashes_fails_its_job_at_once_with_its_last_words(job: Job, process: Any) -> None:
    process(DIES_WITH_WORDS)
    psutil.wait_procs([psutil.Process(job.tick("one").pid)], timeout=60)
    ended = job.tick("one")
    assert (ended.tries, ended.ended_at) == (1, job.clock.now)
    assert "the disk is full" in job.message()


def test_a_process_that_takes_too_long_is_killed(job: Job, process: Any) -> None:
    process(SLEEPS)
    pid = job.tick("one").pid
    assert job.tick("one").state == "RUNNING"
    ended = job.tick("one", seconds=job.services.LONGEST.total_seconds() + 1)
    assert ended.ended_at is not None and "took longer than" in job.message()
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
