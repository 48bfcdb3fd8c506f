"""Steps between starting the stores and the control plane: database, migrations, first user, join token."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from local_stack.configuration import StackConfiguration, build_cluster, child_environment
from local_stack.errors import StackError
from local_stack.files import write_atomically
from local_stack.paths import Paths
from local_stack.services import join_token_file


def django(paths: Paths, variables: Mapping[str, str], *words: str, timeout_seconds: float = 300) -> str:
    """Run a Django management command and return its output. Raises StackError if it fails."""
    command = [str(paths.venv_python), "-m", "django", *words]
    try:
        done = subprocess.run(
            command,
            env=child_environment(paths, variables),
            cwd=paths.root,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"`manage.py {' '.join(words)}` took longer than {timeout_seconds:.0f} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()
        raise StackError(f"`manage.py {' '.join(words)}` failed ({done.returncode}):\n{output[-3000:]}")
    return done.stdout


def prepare_database(paths: Paths, configuration: StackConfiguration, variables: Mapping[str, str]) -> None:
    """Create the database, apply migrations, create the first user, team and project."""
    if configuration.embedded_postgres:
        build_cluster(paths, configuration).ensure_database()
    django(paths, variables, "migrate", "--no-input", "--verbosity", "0")
    django(paths, variables, "init_embedded")


def prepare_join_token(paths: Paths, variables: Mapping[str, str]) -> None:
    """Write a single-use join token for this machine's agent unless the agent has joined already."""
    token_file = join_token_file(paths)
    if (paths.agent_data / "node.json").exists():
        token_file.unlink(missing_ok=True)
        return
    token = django(paths, variables, "join_token").strip().splitlines()[-1].strip()
    os.umask(0o077)
    write_atomically(token_file, token + "\n", mode=0o600)
