"""Parse the tests of a code task from a row's answer: JSON in one of three formats.

* Oolong: {"tests": [{"input": "1 2\\n", "output": "3\\n"}]}, {"function": "add", "tests": [{"arguments": [1, 2],
  "result": 3}]} or {"asserts": ["assert add(1, 2) == 3"]};
* LiveCodeBench's columns: {"public_test_cases": …, "private_test_cases": …, "metadata": {"func_name": …}}, each a
  list or the same list as JSON text; a test has input, output and testtype (stdin, functional);
* APPS and TACO: {"inputs": […], "outputs": […], "fn_name": …}.

LiveCodeBench's compressed private tests are pickles, which are not supported; convert them to JSON first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from gpu_agents.rewards.reward import ScoringError


@dataclass(frozen=True)
class StreamTest:
    """The input and expected output of a whole program."""

    stdin: str
    output: str

    def __post_init__(self) -> None:
        self.stdin.encode()  # ValueError for surrogates, which cannot be encoded


@dataclass(frozen=True)
class CallTest:
    """The arguments and expected JSON result of a function call."""

    arguments: list[Any]
    result: Any


@dataclass(frozen=True, kw_only=True)
class CodeTask:
    kind: Literal["stream", "call", "asserts"]
    streams: tuple[StreamTest, ...] = ()
    calls: tuple[CallTest, ...] = ()
    function: str = ""
    asserts: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.streams) + len(self.calls) + len(self.asserts)


def read_task(answer: str, *, row: int = -1) -> CodeTask:
    """Raises ScoringError with the row and field if the answer has no valid tests."""
    try:
        fields = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise ScoringError(f"row {row}: the answer of a code task is JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ScoringError(
            f"row {row}: the answer of a code task is a JSON object, not {type(fields).__name__}"
        )
    try:
        task = _read(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ScoringError(f"row {row}: the tests cannot be read: {type(error).__name__}: {error}") from error
    if not task.size:
        raise ScoringError(f"row {row}: no tests in the fields {sorted(fields)}")
    return task


def _read(fields: dict[str, Any]) -> CodeTask:
    if "asserts" in fields:
        return CodeTask(kind="asserts", asserts=tuple(str(line) for line in fields["asserts"]))
    if "public_test_cases" in fields or "private_test_cases" in fields:
        return _live_code_bench(fields)
    if "inputs" in fields:
        return _apps(fields)
    tests = fields.get("tests", [])
    if "function" in fields:
        calls = tuple(CallTest(list(test["arguments"]), test["result"]) for test in tests)
        return CodeTask(kind="call", calls=calls, function=str(fields["function"]))
    return CodeTask(
        kind="stream", streams=tuple(StreamTest(str(test["input"]), str(test["output"])) for test in tests)
    )


def _live_code_bench(fields: dict[str, Any]) -> CodeTask:
    tests = [
        *_list(fields.get("public_test_cases") or [], "public_test_cases"),
        *_list(fields.get("private_test_cases") or [], "private_test_cases"),
    ]
    kinds = {test["testtype"] for test in tests}
    if kinds == {"functional"}:
        metadata = fields.get("metadata") or {}
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
        # One JSON value per line: the arguments.
        calls = tuple(
            CallTest(
                [json.loads(line) for line in test["input"].splitlines() if line], json.loads(test["output"])
            )
            for test in tests
        )
        return CodeTask(kind="call", calls=calls, function=str(metadata["func_name"]))
    if kinds <= {"stdin"}:
        return CodeTask(
            kind="stream", streams=tuple(StreamTest(test["input"], test["output"]) for test in tests)
        )
    raise ValueError(f"tests of the types {sorted(kinds)} in one row")


def _list(value: object, name: str) -> list[dict[str, str]]:
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            raise ValueError(
                f"{name} is not JSON; compressed ones are pickles, which are not supported: convert them"
            )
        value = json.loads(value)
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


def _apps(fields: dict[str, Any]) -> CodeTask:
    pairs = list(zip(fields["inputs"], fields["outputs"], strict=True))
    if fields.get("fn_name"):
        # The result is sometimes wrapped in a list of one.
        calls = tuple(CallTest(list(given), wanted) for given, wanted in pairs)
        return CodeTask(kind="call", calls=calls, function=str(fields["fn_name"]))
    return CodeTask(kind="stream", streams=tuple(StreamTest(_text(a), _text(b)) for a, b in pairs))


def _text(value: object) -> str:
    return "\n".join(str(line) for line in value) if isinstance(value, list) else str(value)
