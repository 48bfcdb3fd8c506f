"""The list of environment variables is that of the code, and a misspelt one is reported."""

from __future__ import annotations

import re
from pathlib import Path

from oolong.variables import KNOWN, TESTS, unknown

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("platform", "gpu_agents", "trainers", "docker", "webui/vite.config.ts")


def sources() -> str:
    texts = []
    for folder in FOLDERS:
        path = ROOT / folder
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        texts += [
            file.read_text()
            for file in files
            if file.name != "variables.py" and file.suffix in (".py", ".yaml", ".Dockerfile", ".ts", ".tpl", "")
            and "secrets" not in file.parts
        ]  # fmt: skip
    return "\n".join(texts)


def test_every_variable_that_the_code_names_is_known_and_no_other() -> None:
    named = set(re.findall(r"(?<![A-Z_])OOLONG_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_])", sources()))
    read = {name for name in named if not name.startswith(TESTS)}
    assert read - KNOWN - {name + "_FILE" for name in KNOWN} == set(), "add these to oolong/variables.py"
    tests = (ROOT / "tests/support/switched_agent.py").read_text()
    assert {
        name for name in KNOWN - read if name.removesuffix("_FILE") not in read and name not in tests
    } == set()


def test_a_misspelt_variable_is_named_with_the_nearest_known_one() -> None:
    lines = unknown({"OOLONG_TRUSTED_PROXY": "10.0.0.1", "OOLONG_RATE_USER": "1", "PATH": "/bin"})
    assert lines == [
        "the environment variable OOLONG_TRUSTED_PROXY is set, but nothing reads it; did you mean "
        "OOLONG_TRUSTED_PROXIES?"
    ]
    (line,) = unknown({"OOLONG_ZZZZZZZZ": ""})
    assert line.endswith("nothing reads it")
    assert unknown(dict.fromkeys(KNOWN, "")) == [] == unknown({"OOLONG_TEST_REDIS_URL": ""})
