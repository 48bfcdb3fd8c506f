"""The operator's pages speak of what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

from control_plane.core.infra import metrics
from local_stack.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[4]
PAGES = [ROOT / "docs" / "how-to" / name for name in ("operate.md", "backup.md", "upgrade.md")]
SOURCES = [
    *(ROOT / "platform").rglob("*.py"), *(ROOT / "gpu_agents" / "agent").glob("*.py"),
    *(path for path in (ROOT / "docker").rglob("*") if path.is_file()),
]  # fmt: skip


@pytest.fixture(scope="module")
def source() -> str:
    return "\n".join(path.read_text() for path in SOURCES if path.parent.name != "secrets")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_variables_files_and_links_exist(page: Path, source: str) -> None:
    text = page.read_text()
    commands = set(re.findall(r"manage\.py ([a-z_]+)", text))
    assert commands and commands <= set(COMMANDS) | set(get_commands())
    for variable in set(re.findall(r"\b(?:OOLONG|PROMETHEUS|OTEL|ALLOWED|WANDB)_[A-Z_]*[A-Z]\b", text)):
        assert variable.removesuffix("_FILE") in source, variable
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"`(docker/[\w./-]+)`", text):
        assert (ROOT / path).exists() or path == "docker/secrets" or path.startswith("docker/secrets/"), path


def test_metrics_on_the_page_are_measured(db: None) -> None:
    measured = metrics.exposition().decode()
    named = set(re.findall(r"oolong_[a-z_]+[a-z](?=[`{*\[]|_bucket)", PAGES[0].read_text()))
    assert len(named) > 8
    assert [name for name in named if name.removesuffix("_bucket") not in measured] == []
