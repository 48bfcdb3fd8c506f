"""The code reward: its rows, its comparison, and programs of the policy in the real sandbox."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_agents.rewards.code_compare import same_output, same_value
from gpu_agents.rewards.code_rows import read_task
from gpu_agents.rewards.code_tests import CodeTests, extract_code, program_of
from gpu_agents.rewards.reward import Completion, InvalidOptions, Score, ScoringError
from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.sandbox import SandboxResult

SUM = {"tests": [{"input": "1 2\n", "output": "3\n"}, {"input": "40 2\n", "output": "42\n"}]}
ADD = {"function": "add", "tests": [{"arguments": [1, 2], "result": 3}, {"arguments": [-1, 1], "result": 0}]}
ASSERTS = {"asserts": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]}
GOOD_SUM = "a, b = map(int, input().split())\nprint(a + b)"
GOOD_ADD = "def add(a, b):\n    return a + b"


async def grade(sandboxes: Sandboxes, code: str, answer: Any, **options: Any) -> Score:
    text = f"Here it is:\n```python\n{code}\n```\nDone."
    row = Completion(prompt="", text=text, answer=json.dumps(answer), finish_reason="stop", row=7)
    return await CodeTests({"timeout_seconds": 60, **options}, sandboxes).score(row)


@pytest.mark.parametrize(
    ("code", "answer", "wanted", "result"),
    [
        (GOOD_SUM, SUM, 1.0, "passed"),
        ("print(3)", SUM, 0.0, "wrong_answer"),
        ("import sys; sys.exit(0)", SUM, 0.0, "wrong_answer"),
        (GOOD_ADD, ADD, 1.0, "passed"),
        ("def add(a, b):\n    return str(a + b)", ADD, 0.0, "wrong_answer"),
        (GOOD_ADD, ASSERTS, 1.0, "passed"),
        ("def add(a, b):\n    return 3", ASSERTS, 0.0, "runtime_error"),
    ],
)
async def test_results(sandboxes: Sandboxes, code: str, answer: Any, wanted: float, result: str) -> None:
    """More of them, and the cheats: tests/sandbox/test_code_reward.py."""
    score = await grade(sandboxes, code, answer)
    assert (score.value, score.result) == (wanted, result)


async def test_asserts_are_marked_weak_and_the_others_are_not(sandboxes: Sandboxes) -> None:
    assert (await grade(sandboxes, GOOD_ADD, ASSERTS)).forgeable
    assert (await grade(sandboxes, "", ASSERTS)).forgeable
    assert not (await grade(sandboxes, GOOD_ADD, ADD)).forgeable
    assert not (await grade(sandboxes, GOOD_SUM, SUM)).forgeable


async def test_the_share_of_tests_passed(sandboxes: Sandboxes) -> None:
    assert (await grade(sandboxes, "input(); print(3)", SUM, score="share")).value == 0.5


async def test_no_output_is_stored_and_more_than_could_be_right_is_cut(sandboxes: Sandboxes) -> None:
    """A completion that prints megabytes in each of many tests takes no memory of the service."""
    outcomes: list[SandboxResult] = []
    run = sandboxes.run

    async def spied(*given: Any, **more: Any) -> SandboxResult:
        outcomes.append(await run(*given, **more))
        return outcomes[-1]

    sandboxes.run = spied  # type: ignore[method-assign]
    line = "7" * 99_999 + "\n"
    tests = {"tests": [{"input": f"{n}\n", "output": line} for n in (1, 2, 60)]}
    score = await grade(
        sandboxes, f"for _ in range(int(input())): print('7' * {99_999})", tests, score="share"
    )
    assert score == Score(value=1 / 3, result="wrong_answer")
    assert [test.status for test in outcomes[0].tests] == ["ok", "ok", "output_limit"]
    assert not any(test.stdout or test.stderr or test.value for test in outcomes[0].tests)


async def test_fifteen_tests_take_one_sandbox(sandboxes: Sandboxes) -> None:
    tests = {"tests": [{"input": f"{n} 1\n", "output": f"{n + 1}\n"} for n in range(15)]}
    assert (await grade(sandboxes, GOOD_SUM, tests)).value == 1.0
    assert sandboxes.runs == 1 and sandboxes.tests == {"ok": 15}


@pytest.mark.parametrize("answer", [SUM, ADD], ids=["stream", "call"])
def test_expected_outputs_never_enter_the_sandbox(answer: Any) -> None:
    marked = json.loads(
        json.dumps(answer).replace("42", "987654321").replace('"result": 3', '"result": 987654321')
    )
    task = read_task(json.dumps(marked))
    assert "987654321" in repr(task)
    assert "987654321" not in repr(program_of(task, "code", "nonce"))


# --- rows -------------------------------------------------------------------------------------------------


def test_rows_as_live_code_bench_has_them(tmp_path) -> None:
    """Its columns, in a small file made here: tests are JSON text inside JSON."""
    rows = [
        {
            "question_title": "Sum",
            "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
            "private_test_cases": json.dumps([{"input": "5 5\n", "output": "10\n", "testtype": "stdin"}]),
            "metadata": "{}",
        },
        {
            "question_title": "Pair",
            "public_test_cases": json.dumps(
                [{"input": "[1, 2]\n3", "output": "[1, 2, 3]", "testtype": "functional"}]
            ),
            "private_test_cases": [],
            "metadata": json.dumps({"func_name": "append"}),
        },
    ]
    file = tmp_path / "lcb.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stream, call = (read_task(line) for line in file.read_text().splitlines())
    assert [(test.stdin, test.output) for test in stream.streams] == [("1 2\n", "3\n"), ("5 5\n", "10\n")]
    assert (call.function, call.calls[0].arguments, call.calls[0].result) == (
        "append",
        [[1, 2], 3],
        [1, 2, 3],
    )


async def test_a_live_code_bench_row_is_graded(sandboxes: Sandboxes) -> None:
    answer = {
        "public_test_cases": json.dumps(
            [{"input": "[1, 2]\n3", "output": "[1, 2, 3]", "testtype": "functional"}]
        ),
        "private_test_cases": json.dumps([{"input": "[]\n0", "output": "[0]", "testtype": "functional"}]),
        "metadata": json.dumps({"func_name": "append"}),
    }
    good = (
        "class Solution:\n    def append(self, xs: List[int], x: int) -> List[int]:\n        return xs + [x]"
    )
    assert (await grade(sandboxes, good, answer)).value == 1.0
    public_only = "class Solution:\n    def append(self, xs, x):\n        return [1, 2, 3]"
    assert (await grade(sandboxes, public_only, answer)).result == "wrong_answer"


def test_rows_as_apps_has_them() -> None:
    task = read_task(json.dumps({"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"}))
    assert (task.kind, task.function, task.calls[0].result) == ("call", "add", 3)
    assert read_task(json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})).streams[0].output == "2\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("no json", "row 3: the answer of a code task is JSON"),
        ("[]", "is a JSON object, not list"),
        ("{}", "no tests in the fields"),
        ('{"tests": [{"input": "1"}]}', "cannot be read: KeyError: 'output'"),
        ('{"tests": [{"input": "\\ud800", "output": ""}]}', "cannot be read: UnicodeEncodeError"),
        ('{"private_test_cases": "eJxrYJmqzgABGv=="}', "compressed ones are pickles"),
    ],
)
def test_a_row_without_readable_tests_is_an_error_that_names_it(answer: str, message: str) -> None:
    with pytest.raises(ScoringError, match=message):
        read_task(answer, row=3)


# --- comparing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("3\n", "3", True),
        ("3  \r\n\n", "3\n", True),
        ("1 2\n3\n", "1 2\n3", True),
        ("1  2", "1 2", True),
        ("1\n2", "1 2", False),
        ("0.3333333", "0.33333333333", True),
        ("0.34", "0.33", False),
        ("3.0", "3", False),
        ("03", "3", False),
        ("nan", "nan", True),
        ("inf", "1e400", False),
        ("Yes", "YES", False),
        ("", "3", False),
    ],
)
def test_printed_output(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) is same


@pytest.mark.parametrize(
    ("reported", "expected", "same"),
    [
        (b"3", 3, True),
        (b"3.0", 3, True),
        (b"true", 1, False),
        (b"1", True, False),
        (b'"1"', 1, False),
        (b"[1, [2]]", [1, [2]], True),
        (b"[1]", [1, 2], False),
        (b'{"a": 0.1}', {"a": 0.1000000001}, True),
        (b"null", None, True),
        (None, None, False),
        (b"3 3", 3, False),
        (b"", 3, False),
        (b"NaN", 0, False),
        (b"1" + b"0" * 400, 0.5, False),
        (b"[" * 100_000, 3, False),
    ],
)
def test_returned_values(reported: bytes | None, expected: object, same: bool) -> None:
    assert same_value(reported, expected) is same


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```\n```\nb\n```", "a\n"),
        ("```python\na\n```\nbetter:\n```py\nb\n```", "b\n"),
        ("```\na\n```", "a\n"),
        ("no fence", ""),
    ],
)
def test_the_last_python_block_is_the_answer(text: str, code: str) -> None:
    assert extract_code(text) == code


@pytest.mark.parametrize(
    "options", [{"max_tests": 0.5}, {"memory_mib": 0.5}, {"timeout_seconds": float("inf")}]
)
def test_a_bound_that_would_leave_no_test_is_refused(sandboxes: Sandboxes, options: Any) -> None:
    with pytest.raises(InvalidOptions, match=r"must be a (whole|finite) number; it is (0.5|inf)"):
        CodeTests(options, sandboxes)
