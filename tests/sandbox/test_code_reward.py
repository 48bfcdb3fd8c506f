"""The code reward against programs that want the reward without the work, and every result it has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpu_agents.rewards.code_tests import CodeTests
from gpu_agents.rewards.reward import Completion, Score
from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.sandbox import ProbeResult, probe_sandbox
from tests.support.isolation import require_isolation

SUM = {"tests": [{"input": "1 2\n", "output": "3\n"}, {"input": "40 2\n", "output": "42\n"}]}
ADD = {"function": "add", "tests": [{"arguments": [1, 2], "result": 3}, {"arguments": [-1, 1], "result": 0}]}
ASSERTS = {"asserts": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]}
GOOD_SUM = "a, b = map(int, input().split())\nprint(a + b)"
GOOD_ADD = "def add(a, b):\n    return a + b"


@pytest.fixture(scope="module")
def probe_result() -> ProbeResult:
    return probe_sandbox(slots=2)


@pytest.fixture
async def sandboxes(probe_result: ProbeResult) -> AsyncIterator[Sandboxes]:
    require_isolation(probe_result.capabilities)
    made = Sandboxes.of(probe_result, slots=2)
    yield made
    await made.close()


async def grade(sandboxes: Sandboxes, code: str, answer: Any, **options: Any) -> Score:
    text = f"```python\n{code}\n```"
    row = Completion(prompt="", text=text, answer=json.dumps(answer), finish_reason="stop", row=7)
    seconds = 1 if "while" in code else 60
    return await CodeTests({"timeout_seconds": seconds, **options}, sandboxes).score(row)


@pytest.mark.parametrize(
    ("code", "answer", "wanted", "result"),
    [
        (GOOD_SUM, SUM, 1.0, "passed"),
        ("print(3)", SUM, 0.0, "wrong_answer"),
        ("print(1 / 0)", SUM, 0.0, "runtime_error"),
        ("def f(:", SUM, 0.0, "compile_error"),
        ("while True: pass", SUM, 0.0, "time_limit"),
        ("print('x' * 9_000_000)", SUM, 0.0, "output_limit"),
        ("import sys; sys.exit(0)", SUM, 0.0, "wrong_answer"),
        ("", SUM, 0.0, "no_code"),
        (GOOD_ADD, ADD, 1.0, "passed"),
        ("class Solution:\n    def add(self, a: List[int], b):\n        return a + b", ADD, 1.0, "passed"),
        ("def add(a, b):\n    return str(a + b)", ADD, 0.0, "wrong_answer"),
        ("def sub(a, b):\n    return a - b", ADD, 0.0, "runtime_error"),
        (GOOD_ADD, ASSERTS, 1.0, "passed"),
        ("def add(a, b):\n    return 3", ASSERTS, 0.0, "runtime_error"),
    ],
)
async def test_results(sandboxes: Sandboxes, code: str, answer: Any, wanted: float, result: str) -> None:
    score = await grade(sandboxes, code, answer)
    assert (score.value, score.result) == (wanted, result)


CHEATS = {
    "exit_0": "import sys; sys.exit(0)",
    "os_exit_0": "import os; os._exit(0)",
    "always_equal": "class E(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
    "def add(a, b): return E(9)\nprint(E(9))",
    "patched_print": "import builtins\nbuiltins.print = lambda *a: None\nprint('3')",
    "patched_json": "import json\njson.dumps = lambda v: '3'\njson.loads = lambda v: 3\ndef add(a, b): return 0",
    "own_report": "import os\nos.write(3, b'[\"nonce\", 2]')\nos._exit(0)",
    "reads_expected": "import gc\nhits = [o for o in gc.get_objects() if isinstance(o, dict) and 'result' in o]\n"
    "def add(a, b): return hits[0]['result']",
}


@pytest.mark.core
@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize("answer", [SUM, ADD, ASSERTS], ids=["stream", "call", "asserts"])
async def test_cheats_earn_nothing(sandboxes: Sandboxes, cheat: str, answer: Any) -> None:
    if (cheat, answer) == ("always_equal", ASSERTS):
        score = await grade(sandboxes, CHEATS[cheat], answer)
        assert (score.value, score.forgeable) == (1.0, True), (
            "asserts believe the object; that is why they are forgeable"
        )
        return
    assert (await grade(sandboxes, CHEATS[cheat], answer)).value == 0.0
