"""1 if the completion's mathematical answer equals the row's, by math-verify (parsed and simplified), else 0.

Symbolic simplification can hang on adversarial text, so this function runs in child processes that can be
killed (see `pool`).
"""

from __future__ import annotations

from typing import Any

from gpu_agents.rewards.reward import Completion, NoScore, Reward, refuse_unknown


def build(options: dict[str, Any]) -> Reward:
    refuse_unknown(options, set(), reward="math")
    from math_verify import parse, verify

    def score(completion: Completion) -> float:
        if completion.finish_reason != "stop":
            return 0.0
        # math-verify's own timeouts use signals of the main thread; the pool's hard timeout replaces them.
        wanted = parse(_as_latex(completion.answer), parsing_timeout=None)
        if not wanted:
            raise NoScore(
                f"the answer {completion.answer!r} of row {completion.row} is no mathematical expression"
            )
        given = parse(completion.text, parsing_timeout=None)
        return float(bool(given) and verify(wanted, given, timeout_seconds=None))

    return score


def _as_latex(answer: str) -> str:
    return answer if "$" in answer or "\\boxed" in answer else f"${answer}$"
