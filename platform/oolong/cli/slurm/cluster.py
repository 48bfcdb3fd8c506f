"""The commands of Slurm that the provider needs, as the user who runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from oolong.cli.slurm.types import SlurmJob

SECONDS = 60.0  # for a command


class SlurmUnavailable(Exception):
    """Slurm did not answer. The next poll may succeed."""


class SlurmRefused(Exception):
    """Slurm rejected a job. The message is its own."""


class NoSlurm(Exception):
    """The commands of Slurm are not there."""


class Cluster:
    """Jobs of one name belong to one provider. The commands never see the provider's token."""

    def __init__(self, job_name: str) -> None:
        self.job_name = job_name
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("OOLONG_")
        }

    def jobs(self) -> list[SlurmJob]:
        """The provider's jobs that have not ended."""
        lines = self._run(
            ["squeue", "--noheader", f"--user={os.getuid()}", f"--name={self.job_name}", "--format=%i|%T"]
        )
        return [SlurmJob(*line.split("|", 1)) for line in lines.split()]

    def submit(self, script: str, arguments: Sequence[str], *, log: Path) -> str:
        """Submit a job and return its ID. Raises SlurmRefused."""
        words = [
            "sbatch",
            "--parsable",
            f"--job-name={self.job_name}",
            "--nodes=1",
            "--ntasks=1",
            "--no-requeue",
        ]
        words += [f"--output={log}", *arguments]
        try:
            return self._run(words, script).strip().partition(";")[0]
        except SlurmUnavailable as error:
            raise SlurmRefused(str(error)) from error

    def cancel(self, job: str) -> None:
        """Cancel the job if it is still pending."""
        self._run(["scancel", "--state=PENDING", job])

    def _run(self, words: Sequence[str], text: str = "") -> str:
        try:
            done = subprocess.run(
                words, input=text, env=self._environment, capture_output=True, text=True, timeout=SECONDS
            )
        except FileNotFoundError as error:
            raise NoSlurm(
                f"{words[0]} is not on PATH: run this command where jobs are submitted, a login node of the Slurm "
                "cluster, or load its module first"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmUnavailable(f"{words[0]} did not answer within {SECONDS:g} s") from error
        if done.returncode != 0:
            raise SlurmUnavailable(
                f"{words[0]} failed with status {done.returncode}: {(done.stderr or done.stdout).strip()}"
            )
        return done.stdout
