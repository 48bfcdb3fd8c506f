"""Take the README's screenshot of the dashboard from the page of the demo's run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from local_stack.configuration import child_environment, read_env_file
from local_stack.errors import StackError
from local_stack.files import read_json
from local_stack.paths import Paths

START, END = "<!-- dashboard picture -->", "<!-- end of dashboard picture -->"
SCREENSHOT = Path("docs/pictures/run.png")


def take_screenshot(paths: Paths, *, url: str, login_link: str) -> Path:
    """Take a screenshot of the last demo run's page and insert it, with the run id, into the README."""
    run_id = read_json(paths.var / "demo-summary.json").get("run_id")
    if not isinstance(run_id, str):
        raise StackError(
            "var/demo-summary.json is missing, so there is no run to show. Run `python3 manage.py demo` first."
        )
    target = paths.root / SCREENSHOT
    target.parent.mkdir(parents=True, exist_ok=True)
    words = [str(paths.venv_python), "tests/tools/picture.py", url, login_link.removeprefix(url)]
    words += [str(target.parent), f"/runs/{run_id}=>{target.stem}"]
    environment = child_environment(paths, read_env_file(paths))
    done = subprocess.run(words, cwd=paths.root, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or not target.exists():
        raise StackError(f"the screenshot failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")
    readme = paths.root / "README.md"
    readme.write_text(insert_screenshot(readme.read_text(), run_id))
    return target


def insert_screenshot(text: str, run_id: str) -> str:
    """Insert or replace the screenshot and its caption at the marker in the README."""
    if START not in text:
        raise StackError(f"README.md lacks the marker {START}")
    block = (
        f"{START}\n![A run on the dashboard: reward, staleness, engines and ledger]({SCREENSHOT})\n\n"
        f"*The page of run `{run_id}`, from `make demo` on a machine without a GPU "
        f"(`make screenshots` updates it).*\n{END}"
    )
    ended = re.escape(START) + r"(?:.*?" + re.escape(END) + r")?"
    return re.sub(ended, lambda _: block, text, count=1, flags=re.DOTALL)
