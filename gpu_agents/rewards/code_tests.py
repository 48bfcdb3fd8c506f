"""Score 1 if the completion's Python passes every test of its row, else 0 (or the fraction of passed tests).

Tests run in one sandbox per completion. Only inputs enter it; outputs are compared outside. Asserts are the exception:
they run next to the code under test, which can forge their result, so their scores are marked forgeable.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, replace
from typing import Any

from gpu_agents.model_text import fenced_blocks
from gpu_agents.rewards.code_compare import same_output, same_value
from gpu_agents.rewards.code_rows import CodeTask, read_task
from gpu_agents.rewards.reward import Completion, Score, read_options
from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.contracts.run_spec.reward_options import CodeOptions
from oolong.sandbox import MEBIBYTE, Limits, Program, Status, Test, TestResult

NO_CODE, PASSED, WRONG_ANSWER, COMPILE_ERROR = "no_code", "passed", "wrong_answer", "compile_error"
_RESULTS = {
    Status.FAILED: "runtime_error",
    Status.KILLED: "runtime_error",
    Status.CPU_LIMIT: "time_limit",
    Status.WALL_LIMIT: "time_limit",
    Status.NOT_RUN: "time_limit",  # the total time limit ended before its turn
    Status.MEMORY_LIMIT: "memory_limit",
    Status.PROCESS_LIMIT: "process_limit",
    Status.OUTPUT_LIMIT: "output_limit",
}
SPARE_OUTPUT_BYTES = 64 * 1024
_CANNOT_COMPILE = 113  # exit status; a program that uses it only fails differently

# Modules that solutions often use without importing. Imported once per sandbox, before tests are forked.
PRELUDE = (
    "bisect", "collections", "copy", "functools", "heapq", "itertools", "math", "operator", "random", "re", "string",
    "sys", "typing",
)  # fmt: skip
_PRELUDE_NAMES = re.compile(rf"\b(?:{'|'.join(PRELUDE)})\b")
_PRELUDE_SOURCE = f"import {', '.join(PRELUDE)}\n" + "".join(
    f"from {name} import *\n"
    for name in ("typing", "collections", "itertools", "functools", "heapq", "bisect", "math")
)
_COMPILE = f"""
try:
    code = compile(common["source"], "solution.py", "exec")
except (SyntaxError, ValueError, RecursionError, MemoryError):
    import sys, traceback
    traceback.print_exc(limit=0)
    sys.exit({_CANNOT_COMPILE})
"""
_STREAM = (
    _COMPILE
    + """
exec(code, globals())
"""
)
_CALL = (
    _COMPILE
    + """
space = {"__name__": "solution", "__builtins__": __builtins__}
exec(common["prelude"], space)
exec(code, space)
owner = space.get("Solution")
name = common["function"]
function = getattr(owner(), name) if owner is not None and hasattr(owner, name) else space[name]
report(function(*payload))
"""
)
_ASSERTS = (
    _COMPILE
    + """
def check(nonce, lines, tell):
    space = {"__name__": "solution", "__builtins__": __builtins__}
    exec(common["prelude"], space)
    exec(code, space)
    held = 0
    for line in lines:
        exec(compile(line, "asserts.py", "exec"), space)
        held += 1
    tell([nonce, held])
given, payload = payload, None
check(given.pop("nonce"), given.pop("asserts"), report)
"""
)


@dataclass(frozen=True)
class TestSummary:
    result: str
    passed: int
    total: int


class CodeTests:
    def __init__(self, options: dict[str, Any], sandboxes: Sandboxes) -> None:
        chosen = read_options(CodeOptions, options, reward="code")
        self._extract, self._share, self._max_tests = (
            chosen.extract,
            chosen.score == "share",
            chosen.max_tests,
        )
        seconds = chosen.timeout_seconds
        self._limits = Limits(
            cpu_seconds=seconds,
            wall_seconds=seconds + 4.0,  # a test may wait for a core
            total_wall_seconds=max(60.0, seconds + 10.0),
            memory_bytes=chosen.memory_mib * MEBIBYTE,
            output_bytes=4 * MEBIBYTE,
            stop_at_first_failure=not self._share,
        )
        self._sandboxes = sandboxes

    async def start(self) -> None:
        """Raises SandboxUnsupported if the node cannot sandbox programs."""
        (await self._sandboxes.capabilities()).require()

    async def score(self, completion: Completion) -> Score:
        task = read_task(completion.answer, row=completion.row)
        source = completion.text if self._extract == "whole" else extract_code(completion.text)
        if not source.strip() or "\0" in source:
            return Score(value=0.0, result=NO_CODE, forgeable=task.kind == "asserts")
        summary = await self._run_tests(task, source)
        value = summary.passed / summary.total if self._share else float(summary.passed == summary.total)
        return Score(value=value, result=summary.result, forgeable=task.kind == "asserts")

    async def _run_tests(self, task: CodeTask, source: str) -> TestSummary:
        nonce = secrets.token_hex(16)
        results: dict[int, str] = {}

        def on_test(number: int, test: TestResult) -> TestResult:
            """Compare at once and drop the output, which may be many megabytes over all tests."""
            results[number] = result_of(task, number, test, nonce)
            return replace(test, stdout=b"", stderr=b"", value=None)

        program = program_of(task, source, nonce, self._max_tests)
        outcome = await self._sandboxes.run(program, self._limits, on_test=on_test)
        for number, test in enumerate(outcome.tests):  # tests without an own result
            results.setdefault(number, result_of(task, number, test, nonce))
        in_order = [results[number] for number in range(len(outcome.tests))]
        failed = [result for result in in_order if result != PASSED]
        return TestSummary(failed[0] if failed else PASSED, in_order.count(PASSED), len(in_order))

    async def close(self) -> None:
        pass


def program_of(task: CodeTask, source: str, nonce: str, max_tests: int = 10_000) -> Program:
    """Build the sandboxed program from code and inputs. Expected outputs stay outside, except asserts."""
    common: dict[str, Any] = {"source": source}
    if task.kind == "stream":
        tests = tuple(
            Test(stdin=test.stdin.encode(), output_bytes=_most_output(test.output))
            for test in task.streams[:max_tests]
        )
        named = {found[0] for found in _PRELUDE_NAMES.finditer(source)}
        imports = tuple(name for name in PRELUDE if name in named)
        return Program(source=_STREAM, common=common, tests=tests, imports=imports)
    common |= {"prelude": _PRELUDE_SOURCE, "function": task.function}
    if task.kind == "call":
        tests = tuple(
            Test(payload=test.arguments, output_bytes=_most_output(json.dumps(test.result)))
            for test in task.calls[:max_tests]
        )
        return Program(source=_CALL, common=common, tests=tests, imports=PRELUDE)
    test = Test(payload={"nonce": nonce, "asserts": list(task.asserts)}, output_bytes=SPARE_OUTPUT_BYTES)
    return Program(source=_ASSERTS, common=common, tests=(test,), imports=PRELUDE)


def _most_output(expected: str) -> int:
    """Output limit: the expected output plus spare white space."""
    return 2 * len(expected.encode()) + SPARE_OUTPUT_BYTES


def result_of(task: CodeTask, number: int, test: TestResult, nonce: str) -> str:
    """The result of one test. Exit status 0 alone is never a pass."""
    if test.status is not Status.OK:
        return COMPILE_ERROR if test.exit_code == _CANNOT_COMPILE else _RESULTS[test.status]
    if task.kind == "stream":
        right = same_output(test.stdout.decode(errors="replace"), task.streams[number].output)
    elif task.kind == "call":
        right = same_value(test.value, task.calls[number].result)
    else:
        right = same_value(test.value, [nonce, len(task.asserts)])
    return PASSED if right else WRONG_ANSWER


def extract_code(text: str) -> str:
    """Return the last fenced Python block, else the last fenced block, else ""."""
    last = python = ""
    for block in fenced_blocks(text):
        last = block.body
        if block.language.lower() in ("python", "python3", "py"):
            python = block.body
    return python or last
