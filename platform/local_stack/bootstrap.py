"""One-time steps between the stores and the control plane: database, migrations, first team, enrollment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from local_stack.configuration import StackConfiguration, child_environment, cluster_of
from local_stack.errors import StackError
from local_stack.files import write_atomically
from local_stack.places import Places
from local_stack.services import join_token_file


def django(places: Places, variables: Mapping[str, str], *words: str, timeout_seconds: float = 300) -> str:
    """Run one of Django's management commands and return what it printed. StackError if it fails."""
    command = [str(places.venv_python), "-m", "django", *words]
    try:
        done = subprocess.run(
            command,
            env=child_environment(places, variables),
            cwd=places.root,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"`manage.py {' '.join(words)}` took longer than {timeout_seconds:.0f} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise StackError(f"`manage.py {' '.join(words)}` failed ({done.returncode}):\n{said[-3000:]}")
    return done.stdout


def prepare_database(places: Places, configuration: StackConfiguration, variables: Mapping[str, str]) -> None:
    """Create the database, bring its tables up to date, create the first user, team and project."""
    if configuration.embedded_postgres:
        cluster_of(places, configuration).ensure_database()
    django(places, variables, "migrate", "--no-input", "--verbosity", "0")
    django(places, variables, "init_embedded")


def prepare_enrollment(places: Places, variables: Mapping[str, str]) -> None:
    """Give this machine's agent a single-use token unless it has enrolled already."""
    token_file = join_token_file(places)
    if (places.agent_data / "node.json").exists():
        token_file.unlink(missing_ok=True)
        return
    token = django(places, variables, "join_token").strip().splitlines()[-1].strip()
    os.umask(0o077)
    write_atomically(token_file, token + "\n", mode=0o600)
