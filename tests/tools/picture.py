#!/usr/bin/env python3
"""Pictures of pages of a running Oolong: picture.py BASE_URL LOGIN_PATH OUT_DIR PATH[=name] ... [--dark]"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.support.browser import chromium  # noqa: E402


def main(words: list[str]) -> int:
    scheme = "dark" if "--dark" in words else "light"
    height = 1000
    base, login, out, *paths = [word for word in words if not word.startswith("--")]
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": height}, color_scheme=scheme)
        page.on(
            "console",
            lambda message: (
                print("console:", message.type, message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )
        page.on("pageerror", lambda error: print("page error:", error))
        page.goto(base + login)
        for entry in paths:
            path, _, name = entry.partition("=>")
            page.goto(base + path)
            page.wait_for_timeout(2500)
            stem = name or path.strip("/").replace("/", "-") or "home"
            target = Path(out) / f"{stem}{'-dark' if scheme == 'dark' else ''}.png"
            page.screenshot(path=target, full_page="--full" in words)
            print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
