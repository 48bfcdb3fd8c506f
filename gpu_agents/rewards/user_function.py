"""An uploaded reward function `score(prompt, completion, answer, **options)`, run in the sandbox.

It returns a finite number, or {"score": number, "parts": {name: number}}. Each call has a fresh sandbox. An
exception, an exceeded limit or any other result is an error, never a score.
"""

from __future__ import annotations

from typing import Any

from gpu_agents.rewards.reported_score import read_number, read_parts
from gpu_agents.rewards.reward import Completion, Score, ScoringError, VerifierFailed
from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.sandbox import MEBIBYTE, Limits, Program, Status, Test
from oolong.untrusted import parse_json

MESSAGE_CHARACTERS = 600
_CALL = """
space = {"__name__": "reward", "__builtins__": __builtins__}
try:
    exec(compile(common["source"], "reward.py", "exec"), space)
    report(space["score"](**payload, **common["options"]))
except (MemoryError, BlockingIOError):
    raise
except BaseException as error:
    import sys, traceback
    traceback.print_exception(type(error), error, error.__traceback__.tb_next)
    sys.exit(1)
"""


class UserFunction:
    def __init__(
        self, source: str, options: dict[str, Any], *, sandboxes: Sandboxes, timeout_seconds: float
    ) -> None:
        self._common = {"source": source, "options": options}
        self._sandboxes = sandboxes
        self._limits = Limits(
            cpu_seconds=timeout_seconds,
            wall_seconds=timeout_seconds,
            total_wall_seconds=timeout_seconds + 10,
            memory_bytes=512 * MEBIBYTE,
        )

    async def start(self) -> None:
        """Raises SandboxUnsupported if the node cannot sandbox user code."""
        (await self._sandboxes.capabilities()).require()

    async def score(self, completion: Completion) -> Score:
        given = {
            "prompt": completion.prompt,
            "completion": completion.text,
            "answer": completion.answer,
        }
        program = Program(source=_CALL, common=self._common, tests=(Test(payload=given),))
        test = (await self._sandboxes.run(program, self._limits)).only
        if test.status is not Status.OK:
            output = test.stderr.decode(errors="replace").strip()[-MESSAGE_CHARACTERS:]
            raise VerifierFailed(f"the reward function ended with {test.status}: {output}")
        return read_result(test.value)

    async def close(self) -> None:
        pass


def read_result(reported: bytes | None) -> Score:
    """Parse the function's JSON result. Raises ScoringError if it is not a score."""
    if reported is None:
        raise ScoringError("the reward function returned a value that cannot be written as JSON")
    try:
        result = parse_json(reported)
    except ValueError as error:
        start = reported[:80].decode(errors="replace")
        raise ScoringError(f"the reward function returned invalid JSON: {start}: {error}") from error
    if isinstance(result, dict) and "score" in result:
        return Score(value=read_number(result["score"], "score"), parts=read_parts(result))
    return Score(value=read_number(result, "the score"))
