"""1 if the completion's Python passes every test of its row, else 0 (or the share of tests it passes).

The tests run in one sandbox per completion, forked from a process that has never seen its code. Only inputs go in;
what a program printed or returned comes out and is compared here. The one exception are asserts: they run beside
the code that they check, which can forge them, so their scores are marked forgeable.
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
_VERDICTS = {
    Status.FAILED: "runtime_error",
    Status.KILLED: "runtime_error",
    Status.CPU_LIMIT: "time_limit",
    Status.WALL_LIMIT: "time_limit",
    Status.NOT_RUN: "time_limit",  # the whole time was over before its turn
    Status.MEMORY_LIMIT: "memory_limit",
    Status.PROCESS_LIMIT: "process_limit",
    Status.OUTPUT_LIMIT: "output_limit",
}
SPARE_OUTPUT_BYTES = 64 * 1024
_CANNOT_COMPILE = 113  # exit status; a program that takes it only gives itself another name for failing

# What solutions of such tasks use without importing it. Imported once per sandbox, before the tests are forked.
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
class Verdict:
    word: str
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
            wall_seconds=seconds + 4.0,  # on a busy machine a test may wait for a core
            total_wall_seconds=max(60.0, seconds + 10.0),
            memory_bytes=chosen.memory_mib * MEBIBYTE,
            output_bytes=4 * MEBIBYTE,
            stop_at_first_failure=not self._share,
        )
        self._sandboxes = sandboxes

    async def start(self) -> None:
        """Raise SandboxUnsupported where the node cannot run programs of the policy."""
        (await self._sandboxes.capabilities()).require()

    async def score(self, completion: Completion) -> Score:
        task = read_task(completion.answer, row=completion.row)
        source = completion.text if self._extract == "whole" else extract_code(completion.text)
        if not source.strip() or "\0" in source:
            return Score(value=0.0, verdict=NO_CODE, forgeable=task.kind == "asserts")
        verdict = await self._judge(task, source)
        value = verdict.passed / verdict.total if self._share else float(verdict.passed == verdict.total)
        return Score(value=value, verdict=verdict.word, forgeable=task.kind == "asserts")

    async def _judge(self, task: CodeTask, source: str) -> Verdict:
        nonce = secrets.token_hex(16)
        words: dict[int, str] = {}

        def on_test(number: int, test: TestResult) -> TestResult:
            """Compare at once, and keep none of what was printed: outputs of all tests are many megabytes."""
            words[number] = verdict_of(task, number, test, nonce)
            return replace(test, stdout=b"", stderr=b"", value=None)

        program = program_of(task, source, nonce, self._max_tests)
        outcome = await self._sandboxes.run(program, self._limits, on_test=on_test)
        for number, test in enumerate(outcome.tests):  # those that came to no end of their own
            words.setdefault(number, verdict_of(task, number, test, nonce))
        in_order = [words[number] for number in range(len(outcome.tests))]
        failed = [word for word in in_order if word != PASSED]
        return Verdict(failed[0] if failed else PASSED, in_order.count(PASSED), len(in_order))

    async def close(self) -> None:
        pass


def program_of(task: CodeTask, source: str, nonce: str, max_tests: int = 10_000) -> Program:
    """What enters the sandbox: the code and the inputs. No expected output, but for asserts, which are code."""
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
    """Of a program that prints what is expected, with white space to spare: more is no answer."""
    return 2 * len(expected.encode()) + SPARE_OUTPUT_BYTES


def verdict_of(task: CodeTask, number: int, test: TestResult, nonce: str) -> str:
    """In one word. Exit status 0 alone is never a pass."""
    if test.status is not Status.OK:
        return COMPILE_ERROR if test.exit_code == _CANNOT_COMPILE else _VERDICTS[test.status]
    if task.kind == "stream":
        right = same_output(test.stdout.decode(errors="replace"), task.streams[number].output)
    elif task.kind == "call":
        right = same_value(test.value, task.calls[number].result)
    else:
        right = same_value(test.value, [nonce, len(task.asserts)])
    return PASSED if right else WRONG_ANSWER


def extract_code(text: str) -> str:
    """Return the last fenced block that says python, else the last one; "" when there is none."""
    last = python = ""
    for block in fenced_blocks(text):
        last = block.body
        if block.language.lower() in ("python", "python3", "py"):
            python = block.body
    return python or last
