"""Take the README's screenshots of the dashboard from the demo's run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from local_stack.configuration import child_environment, read_env_file
from local_stack.errors import StackError
from local_stack.files import read_json
from local_stack.paths import Paths

START, END = "<!-- dashboard picture -->", "<!-- end of dashboard picture -->"
MORE_START, MORE_END = "<!-- more pictures -->", "<!-- end of more pictures -->"
FOLDER = Path("docs/pictures")
RUN = FOLDER / "run.png"
TIMELINE = "The timeline of the same run: what engines and trainer do, colored by policy version"
POOL = "The pool: who holds which slot, the queue with its reasons, nodes and quotas"
MORE = (  # name of the picture, path of the page, and what it shows
    ("run-timeline", "/runs/{run}?tab=timeline", TIMELINE),
    ("pool", "/pool", POOL),
)


def take_screenshots(paths: Paths, *, url: str, login_link: str) -> list[Path]:
    """Take screenshots of the last demo run and of the pool, and insert them, with the run id, into the README."""
    run_id = read_json(paths.var / "demo-summary.json").get("run_id")
    if not isinstance(run_id, str):
        raise StackError(
            "var/demo-summary.json is missing, so there is no run to show. Run `python3 manage.py demo` first."
        )
    targets = [paths.root / RUN, *(paths.root / FOLDER / f"{name}.png" for name, _, _ in MORE)]
    targets[0].parent.mkdir(parents=True, exist_ok=True)
    words = [str(paths.venv_python), "tests/tools/picture.py", url, login_link.removeprefix(url)]
    words += [str(targets[0].parent), f"/runs/{run_id}=>{RUN.stem}"]
    words += [f"{path.format(run=run_id)}=>{name}" for name, path, _ in MORE]
    environment = child_environment(paths, read_env_file(paths))
    done = subprocess.run(words, cwd=paths.root, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or not all(target.exists() for target in targets):
        raise StackError(f"the screenshots failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")
    readme = paths.root / "README.md"
    readme.write_text(insert_screenshots(readme.read_text(), run_id))
    return targets


def insert_screenshots(text: str, run_id: str) -> str:
    """Insert or replace the screenshots and their captions at the markers in the README."""
    first = (
        f"![A run on the dashboard: reward, staleness, engines and ledger]({RUN})\n\n"
        f"*The page of run `{run_id}`, from `make demo` on a machine without a GPU "
        f"(`make screenshots` updates it).*"
    )
    more = "\n\n".join(f"![{shown}]({FOLDER / f'{name}.png'})\n\n*{shown}.*" for name, _, shown in MORE)
    return _replaced(_replaced(text, START, END, first), MORE_START, MORE_END, more)


def _replaced(text: str, start: str, end: str, block: str) -> str:
    if start not in text:
        raise StackError(f"README.md lacks the marker {start}")
    ended = re.escape(start) + r"(?:.*?" + re.escape(end) + r")?"
    return re.sub(ended, lambda _: f"{start}\n{block}\n{end}", text, count=1, flags=re.DOTALL)
