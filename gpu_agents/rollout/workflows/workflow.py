"""What a workflow is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from oolong.workflow import Episode


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """`run` makes a trajectory of an episode and returns what it is worth: reward = reward.scale * worth + reward.bias.

    A workflow whose state does not follow from its trajectory (an open session, a service) is not `movable`: when its
    worker stops it begins anew elsewhere, and the tokens so far are counted as lost.
    """

    run: Callable[[Episode], Awaitable[float]]
    movable: bool = True
    executes: bool = False  # it cannot do without `Episode.execute`
    close: Callable[[], Awaitable[None]] | None = None  # when the worker ends
