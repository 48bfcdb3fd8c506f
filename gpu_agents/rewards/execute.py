"""POST /execute: run Python in a fresh sandbox, as a tool of a workflow."""

from __future__ import annotations

from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.contracts.rollout import ExecuteReply, ExecuteRequest
from oolong.sandbox import Limits, Program, Test
from oolong.untrusted import parse_json

MAX_CODE_BYTES = 256 * 1024
# As in a notebook cell, the value of the last expression is shown.
_CELL = """
import ast
space = {"__name__": "__main__", "__builtins__": __builtins__}
try:
    tree = ast.parse(payload, "code.py")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "code.py", "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "code.py", "eval"), space)
        if value is not None:
            report(repr(value))
except (SystemExit, MemoryError, BlockingIOError):
    raise
except BaseException as error:
    import sys, traceback
    traceback.print_exception(type(error), error, error.__traceback__.tb_next)
    sys.exit(1)
"""


def limits_of(request: ExecuteRequest) -> Limits:
    return Limits(
        cpu_seconds=request.wall_seconds,
        wall_seconds=request.wall_seconds,
        total_wall_seconds=request.wall_seconds + 10,
        memory_bytes=request.memory_bytes,
        output_bytes=request.output_bytes,
    )


async def execute(sandboxes: Sandboxes, request: ExecuteRequest) -> ExecuteReply:
    """Raises SandboxFailed, SandboxUnsupported."""
    program = Program(source=_CELL, tests=(Test(payload=request.code, stdin=request.stdin.encode()),))
    outcome = await sandboxes.run(program, limits_of(request))
    test = outcome.only
    return ExecuteReply(
        status=str(test.status),
        stdout=test.stdout.decode(errors="replace"),
        stderr=test.stderr.decode(errors="replace"),
        value=_value(test.value),
        seconds=test.seconds,
        wait_seconds=outcome.wait_seconds,
    )


def _value(reported: bytes | None) -> str | None:
    """The reported value. If the code called `report` itself, this is arbitrary text."""
    if reported is None:
        return None
    try:
        value = parse_json(reported)
    except ValueError:
        return reported.decode(errors="replace")
    return value if isinstance(value, str) else reported.decode()
