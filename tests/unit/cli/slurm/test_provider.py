"""What the provider writes, and what it hands to Slurm."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from oolong.cli.slurm.batch_script import batch_script
from oolong.cli.slurm.cluster import Cluster, NoSlurm, SlurmRefused
from oolong.cli.slurm.provider import ProviderIsRunning, State
from oolong.cli.slurm.types import JobOptions, SlurmJob

OPTIONS = JobOptions(
    server="https://oolong.example.org", python=Path("/shared/a venv/bin/python"), node_python="/shared/node/python",
    slots=8, device="cuda", slots_per_gpu=1, idle_minutes=10.0, data_root="", agent_arguments=("--model-root", "/m"),
)  # fmt: skip


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands, which write down how they were called."""
    answers = {
        "squeue": "printf '7|RUNNING\\n12|PENDING\\n'",
        "sbatch": "cat > script; echo '12;cluster'",
        "scancel": "",
    }
    for name, answer in answers.items():
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\ncd {tmp_path}\necho {name} "$@" >> called\nenv >> called\n{answer}\n')
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("OOLONG_TOKEN", "ool_secret")
    return tmp_path


def test_the_script_is_a_script_and_names_no_token() -> None:
    script = batch_script(OPTIONS, jobs=Path("/shared/state/jobs"))
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "token=/shared/state/jobs/$SLURM_JOB_ID/token" in script
    assert "'/shared/a venv/bin/python' -m gpu_agents.agent run --provider slurm" in script
    assert "--device cuda --slots-per-gpu 1" in script
    assert "--join-token " not in script


def test_commands_of_slurm_find_the_providers_jobs_and_never_see_its_token(commands: Path) -> None:
    cluster = Cluster("oolong-default-1")
    assert cluster.jobs() == [SlurmJob("7", "RUNNING"), SlurmJob("12", "PENDING")]
    assert cluster.submit("#!/bin/bash\n", ["--partition=gpu"], log=commands / "%j.log") == "12"
    cluster.cancel("12")
    called = (commands / "called").read_text()
    assert "--name=oolong-default-1" in called
    assert "--job-name=oolong-default-1 --nodes=1 --ntasks=1 --no-requeue" in called
    assert "scancel --state=PENDING 12" in called
    assert "ool_secret" not in called
    assert (commands / "script").read_text() == "#!/bin/bash\n"


def test_a_refused_job_says_what_slurm_says(commands: Path) -> None:
    (commands / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition: gpu' >&2\nexit 1\n")
    with pytest.raises(SlurmRefused, match="invalid partition: gpu"):
        Cluster("oolong").submit("", [], log=commands / "log")


def test_without_slurm_the_error_says_where_to_run_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSlurm, match="squeue is not on PATH: run this command where jobs are submitted"):
        Cluster("oolong").jobs()


def test_tokens_are_for_the_user_alone(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    with state.locked():
        assert state.needs_token("7")
        state.write_token("7", "one")
        state.write_token("7", "two")
        file = state.jobs / "7" / "token"
        assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("two", 0o600)
        assert stat.S_IMODE(state.jobs.stat().st_mode) == 0o700
        assert (state.own(), state.needs_token("7")) == ({"7"}, False)
        state.forget("7")
        assert state.own() == frozenset()


def test_one_provider_works_with_a_folder(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    with state.locked():
        with pytest.raises(ProviderIsRunning, match="another provider works with"), state.locked():
            pass
    with state.locked():
        pass
