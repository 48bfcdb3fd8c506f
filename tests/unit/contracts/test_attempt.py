import msgspec
import pytest

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult, read_attempt, read_job, write_result
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.contracts.run_spec import RunSpec


def test_attempt_and_job_files_round_trip(tmp_path):
    spec = RunSpec.model_validate(
        {"name": "first", "model": {"base_model": "bm_1"}, "dataset": {"version": "letters@1"}}
    )
    attempt = AttemptFile(
        run_id="run_1", attempt_id="att_1", attempt_number=1, epoch=1, spec=spec.model_dump(mode="json"),
        directory=str(tmp_path), model_directory="/m", dataset_file="/d",
    )  # fmt: skip
    (tmp_path / "attempt.json").write_bytes(msgspec.json.encode(attempt))
    assert read_attempt(tmp_path / "attempt.json") == attempt
    assert read_attempt(tmp_path / "attempt.json").run_spec.model_dump(
        exclude={"trainer"}
    ) == spec.model_dump(exclude={"trainer"})
    job = JobFile(job_id="job_1", name="trainer", kind=JobKind.TRAINER, incarnation=1)
    (tmp_path / "job.json").write_bytes(msgspec.json.encode(job))
    assert read_job(tmp_path) == job


@pytest.mark.parametrize(
    ("given", "device", "computes_in"),
    [
        (None, "cpu", "float32"),
        (None, "cuda", "bfloat16"),
        ("float32", "cuda", "float32"),
        ("bfloat16", "cpu", "bfloat16"),
    ],
)
def test_a_job_computes_in_the_type_of_its_device_unless_the_spec_names_one(given, device, computes_in):
    spec = {
        "name": "n",
        "model": {"base_model": "m"},
        "dataset": {"version": "d@1"},
        "trainer": {"dtype": given},
    }
    attempt = AttemptFile(
        run_id="run_1", attempt_id="att_1", attempt_number=1, epoch=1, spec=spec, directory="/a", model_directory="/m",
        dataset_file="/d", device=device,
    )  # fmt: skip
    assert attempt.run_spec.trainer.compute_type == computes_in
    assert attempt.spec["trainer"] == {"dtype": given}, "what is stored stays as it was submitted"


def test_a_result_is_complete_or_absent(tmp_path):
    write_result(tmp_path, JobResult(reason=EndReason.COMPLETED))
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert msgspec.json.decode((tmp_path / "result.json").read_bytes(), type=JobResult).reason == "completed"


def test_a_result_keeps_a_message_that_is_no_text_or_too_long(tmp_path):
    """As an exception of a user's loss may have it; without a result the reason would be lost."""
    write_result(
        tmp_path, JobResult(reason=EndReason.CONFIG_REJECTED, message="a\0b\ud800" + "x" * 10_000_000)
    )
    read = msgspec.json.decode((tmp_path / "result.json").read_bytes(), type=JobResult)
    assert read.message.startswith("a\ufffdb\ufffdxx") and len(read.message) == 2000
