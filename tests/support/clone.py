"""A checkout of its own for tests that call manage.py as a person does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from local_stack.files import read_json
from local_stack.paths import checkout_paths

SHARED = ("platform", "gpu_agents", "trainers", "constraints", "docs", ".venv", "manage.py")


class Clone:
    """A checkout of its own: same code and environments, own data, ports and processes."""

    def __init__(self, folder: Path, checkout: Path, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.root, self.home = folder / "clone", folder / "home"
        self.root.mkdir()
        self.home.mkdir(mode=0o755)
        for name in SHARED:
            (self.root / name).symlink_to(checkout / name)
        (self.home / "envs").symlink_to(checkout_paths(checkout).environments)

    def manage(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """What a newcomer's shell has."""
        here = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "OOLONG_HOME": str(self.home)}
        return {**here, **self._settings}

    def pids(self) -> dict[str, int]:
        """Pids of the services, from their pid files."""
        files = (self.root / "var" / "run").glob("*.json")
        return {file.stem: record["pid"] for file in files if "pid" in (record := read_json(file))}

    def agent_data(self) -> Path:
        return next((self.home / "clones").iterdir()) / "agent"


@contextmanager
def running_clone(checkout: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[Clone]:
    """A clone whose stack is up, with these variables in its environment, and gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="oolong-up-"))
    folder.chmod(0o755)
    made = Clone(folder, checkout, settings)
    try:
        made.manage("up")
        yield made
    finally:
        made.manage("down", code=None)
        shutil.rmtree(folder, ignore_errors=True)
