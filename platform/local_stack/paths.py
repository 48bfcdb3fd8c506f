"""The paths of a clone, computed from the checkout, the user and the environment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    """Folders of one clone and folders that all clones of a user share."""

    root: Path  # the checkout
    home: Path  # shared by clones: environments, programs, port registry
    data: Path  # databases, blob store and agent of this clone; survives `down`
    clone_id: str  # hash of the checkout path
    as_root: bool

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def venv_python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def environments(self) -> Path:
        return self.home / "envs"

    @property
    def var(self) -> Path:
        return self.root / "var"

    @property
    def run(self) -> Path:
        return self.var / "run"

    @property
    def logs(self) -> Path:
        return self.var / "logs"

    @property
    def stack_file(self) -> Path:
        return self.var / "stack.json"

    @property
    def env_file(self) -> Path:
        return self.var / "stack.env"

    @property
    def constraints(self) -> Path:
        return self.root / "constraints"

    @property
    def webui(self) -> Path:
        return self.root / "webui"

    @property
    def store(self) -> Path:
        return self.data / "store"

    @property
    def agent_data(self) -> Path:
        return self.data / "agent"


def resolve_paths(root: Path, *, environ: Mapping[str, str], uid: int, user_home: Path) -> Paths:
    """Compute the paths of a clone.

    As root, data is in /var/lib: PostgreSQL refuses to run as root, and its user cannot reach files below a home
    folder with mode 700. `OOLONG_HOME` overrides the location of shared folders and data.
    """
    root = root.resolve()
    clone_id = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    override = environ.get("OOLONG_HOME")
    if override:
        home = Path(override).expanduser().resolve()
        data = home / "clones" / clone_id
    elif uid == 0:
        home = Path("/var/lib/oolong")
        data = home / "clones" / clone_id
    else:
        cache = Path(environ.get("XDG_CACHE_HOME") or user_home / ".cache")
        home = cache / "oolong"
        data = root / "var" / "data"
    return Paths(root=root, home=home, data=data, clone_id=clone_id, as_root=uid == 0)


def checkout_paths(root: Path) -> Paths:
    """Paths of the checkout `root` for the current user."""
    home = Path(os.environ.get("HOME") or os.path.expanduser("~"))
    return resolve_paths(root, environ=os.environ, uid=os.geteuid(), user_home=home)
