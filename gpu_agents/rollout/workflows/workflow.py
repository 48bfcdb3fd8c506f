"""The type of a workflow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from oolong.workflow import Episode


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """`run` turns an episode into a trajectory and returns its value: reward = reward.scale * value + reward.bias.

    A workflow whose state does not follow from its trajectory (an open session, a service) is not `migratable`: when
    its worker stops, it restarts elsewhere and the tokens so far are counted as lost.
    """

    run: Callable[[Episode], Awaitable[float]]
    migratable: bool = True
    executes: bool = False  # it needs `Episode.execute`
    close: Callable[[], Awaitable[None]] | None = None  # called when the worker ends
