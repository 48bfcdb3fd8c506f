"""Generate the synchronous client (`oolong.client.sync`) from the asynchronous one (`oolong.client.aio`).

`python -m local_stack.sync_client` does it where `unasync` is installed; `ensure` starts that in the checkout's
environment. The generated files are not committed; wheels and images contain them.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

from local_stack.errors import StackError
from local_stack.paths import Paths

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path("platform", "oolong", "client")
RENAMED = {
    "aclose": "close",
    "aclosing": "closing",
    "aio": "sync",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "async_primitives": "sync_primitives",
}


def is_current(root: Path) -> bool:
    """Whether the generated client exists and was made from these sources by this generator."""
    marker = root / CLIENT / "sync" / "__init__.py"
    return marker.is_file() and marker.read_text() == _marker(root)


def ensure(paths: Paths) -> None:
    """Generate the client if it is missing or stale. A second call takes milliseconds."""
    if is_current(paths.root):
        return
    command = [str(paths.venv_python), "-m", "local_stack.sync_client"]
    variables = {**os.environ, "PYTHONPATH": str(paths.root / "platform")}
    done = subprocess.run(command, cwd=paths.root, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(
            f"the synchronous client could not be generated; run `python3 manage.py setup`:\n{done.stderr[-1500:]}"
        )


def generate(root: Path) -> None:
    """Write `sync/`. Each file is replaced whole and the marker last, so concurrent calls do no harm."""
    import unasync

    sources = _sources(root)
    classes = {name for file in sources for name in re.findall(r"\bAsync[A-Z]\w+", file.read_text())}
    sync = root / CLIENT / "sync"
    sync.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root / CLIENT, prefix=".sync-") as scratch:
        rule = unasync.Rule(
            fromdir=str(root / CLIENT / "aio"),
            todir=scratch,
            additional_replacements={**RENAMED, **{name: name.removeprefix("Async") for name in classes}},
        )
        modules = [file for file in sources if file.name != "__init__.py"]
        unasync.unasync_files([str(file) for file in modules], [rule])
        for file in modules:
            os.replace(Path(scratch, file.name), sync / file.name)
        Path(scratch, "__init__.py").write_text(_marker(root))
        os.replace(Path(scratch, "__init__.py"), sync / "__init__.py")
    for file in set(sync.glob("*.py")) - {sync / source.name for source in sources}:
        file.unlink(missing_ok=True)


def _sources(root: Path) -> list[Path]:
    return sorted((root / CLIENT / "aio").glob("*.py"))


def _marker(root: Path) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in _sources(root):
        digest.update(file.name.encode() + file.read_bytes())
    return f'"""The synchronous client, generated from `oolong.client.aio` ({digest.hexdigest()[:16]})."""\n'


if __name__ == "__main__":
    generate(ROOT)
