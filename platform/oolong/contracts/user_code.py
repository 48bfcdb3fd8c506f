"""Source that users upload: its kinds, and the function that each kind must define.

The control plane only parses such a file and never runs it. A node gets it as an input of the attempt
(`AttemptFile.source_files`) and runs a reward or a workflow in the sandbox, a loss inside the trainer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

MAX_SOURCE_BYTES = 256 * 1024


class SourceKind(StrEnum):
    REWARD = "reward"
    WORKFLOW = "workflow"
    LOSS = "loss"


EVALUATION_REWARD = "evaluation_reward"  # a reward's source as well: of evaluation.reward
SAMPLES = "samples"  # an input beside the sources: completions for a reward's test, as JSON lines


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """A top-level function. It takes `parameters` by these names, in this order; further ones are options.

    An option has a default, or the function takes `**options`; the RunSpec gives its value.
    """

    name: str
    parameters: tuple[str, ...]
    returns: str
    is_async: bool = False

    @property
    def signature(self) -> str:
        return f"{'async ' if self.is_async else ''}def {self.name}({', '.join(self.parameters)}, …)"


ENTRY_POINTS: dict[SourceKind, EntryPoint] = {
    SourceKind.REWARD: EntryPoint(
        name="score",
        parameters=("prompt", "completion", "answer"),  # texts
        returns='the score, a finite number, or {"score": number, "parts": {name: number}}',
    ),
    SourceKind.WORKFLOW: EntryPoint(
        name="run",
        parameters=("episode",),  # oolong.workflow.Episode
        returns="what the trajectory is worth, a finite number",
        is_async=True,
    ),
    SourceKind.LOSS: EntryPoint(
        name="loss",
        parameters=("inputs", "settings"),  # trainers.algorithms.losses.LossInputs, RunSpec.algorithm
        returns="LossOutputs",
    ),
}

# Kinds that the jobs of a node know how to run. A run that names another kind is refused (not_supported_yet).
RUNNABLE_KINDS: frozenset[SourceKind] = frozenset(SourceKind)

# The standard library of the sandbox: without `sandbox.runtime_files.EXCLUDED` and modules that need a screen.
SANDBOX_MODULES = frozenset(sys.stdlib_module_names) - {
    "ensurepip", "idlelib", "lib2to3", "test", "tkinter", "turtle", "turtledemo", "_tkinter", "antigravity", "this",
}  # fmt: skip
# What is there beside it for a kind of source, by its whole name.
SANDBOX_EXTRAS: dict[SourceKind, frozenset[str]] = {SourceKind.WORKFLOW: frozenset({"oolong.workflow"})}
