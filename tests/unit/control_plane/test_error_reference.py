"""The page of error codes names every code that the control plane can answer with."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CODE = re.compile(
    r'(?:Problem|problem_response)\(\s*(?:request,\s*)?\d+,\s*"([a-z_]+)"'
    r'|(?:conflict|unprocessable)\(\s*"([a-z_]+)"'
    r'|body\(\s*\d+,\s*"([a-z_]+)"'
)


def test_every_code_in_the_source_is_on_the_page():
    sources = list((ROOT / "platform" / "control_plane").rglob("*.py"))
    used = {next(filter(None, found)) for path in sources for found in CODE.findall(path.read_text())}
    assert len(used) > 25
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert sorted(code for code in used if f"`{code}`" not in page) == []
