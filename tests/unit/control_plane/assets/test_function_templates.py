"""The files that the dashboard's editor begins with are accepted as they are, and the reward does what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from control_plane.assets.functions.function_source import read_source
from oolong.contracts.user_code import SourceKind

TEMPLATES = Path(__file__).resolve().parents[4] / "webui" / "src" / "functions" / "templates"


@pytest.mark.parametrize("kind", list(SourceKind))
def test_a_template_is_accepted_and_has_options(kind: SourceKind) -> None:
    facts = read_source(kind, (TEMPLATES / f"{kind}.py").read_text())
    assert facts.errors == [] and facts.options


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("It is 1,234.", 1.0),
        ("x" * 3000 + " 1234", 0.9),
        ("12, then 34", 0.0),
        ("", 0.0),
    ],
)
def test_the_reward_template_scores_the_last_number(completion: str, expected: float) -> None:
    score = runpy.run_path(str(TEMPLATES / "reward.py"))["score"]
    assert score("?", completion, "1234")["score"] == pytest.approx(expected)
