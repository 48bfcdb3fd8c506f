#!/usr/bin/env python3
"""Pictures of pages of a running Oolong.

picture.py BASE_URL LOGIN_PATH OUT_DIR PATH[=>NAME] ... [--dark] [--full] [--height=PIXELS]

Exits 1 when a page shows an error or its script fails; a page with charts is taken once they have points.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from playwright.sync_api import Page  # noqa: E402

from tests.support.browser import chromium  # noqa: E402

WIDTH, HEIGHT = 1440, 1000


def settle(page: Page, path: str) -> None:
    """Wait for the fonts, for the page's own waiting to end and, on a run's live page, for points."""
    page.wait_for_load_state("load")
    page.evaluate("document.fonts.ready")
    page.wait_for_function("() => document.querySelector('main h1') !== null")
    if path.startswith("/runs/run_") and "tab=" not in path:
        page.wait_for_function(
            "() => [...document.querySelectorAll('[data-chart]')].some(chart => Number(chart.dataset.points) > 0)"
        )
    page.wait_for_timeout(900)  # the last redraw of the charts


def main(words: list[str]) -> int:
    flags = {word.partition("=")[0]: word.partition("=")[2] for word in words if word.startswith("--")}
    base, login, out, *paths = [word for word in words if not word.startswith("--")]
    scheme = "dark" if "--dark" in flags else "light"
    failures: list[str] = []
    with chromium() as browser:
        viewport = {"width": WIDTH, "height": int(flags.get("--height") or HEIGHT)}
        page = browser.new_page(viewport=viewport, color_scheme=scheme, device_scale_factor=1.5)  # type: ignore[arg-type]
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto(base + login)
        for entry in paths:
            path, _, name = entry.partition("=>")
            page.goto(base + path)
            settle(page, path)
            failures += page.get_by_role("alert").all_inner_texts()
            stem = name or path.strip("/").replace("/", "-") or "home"
            target = Path(out) / f"{stem}{'-dark' if scheme == 'dark' else ''}.png"
            page.screenshot(path=target, full_page="--full" in flags)
            print(target)
    for failure in failures:
        print(f"on a page: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
