"""How many rollouts a worker keeps in its engine at once: an AIMD window over the engine's load.

Additive increase, multiplicative decrease (AIMD, Chiu and Jain 1989), with a slow start as in TCP:
  retractions              the KV cache ran out and the engine repeats work:    x 0.8
  KV cache over 90 %       it is about to run out:                              x 0.9
  a queue, twice in a row  the engine admits more than it decodes:              x 0.9
  KV cache under 70 %, no queue, window full
                           capacity is free: x 1.25 before the first cut, + one group after it
Between 70 % and 90 % the window stays. Retractions caused by a weight load do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

GROW_BELOW_KV = 0.7
CUT_ABOVE_KV = 0.9
QUEUE_SHARE = 0.1  # waiting / running requests; a smaller ratio is normal churn


@dataclass(frozen=True, kw_only=True)
class WindowLimits:
    group_size: int  # the window grows by whole groups, and holds at least one
    max_rollouts: int  # rollout.engine_max_running_requests
    kv_tokens: int  # rollout.engine_max_total_tokens
    longest_tokens: int  # prompt and completion, at most

    def first_window(self) -> int:
        """As many rollouts as fit at full length, so that none is retracted."""
        return self.clamp(self.kv_tokens // self.longest_tokens)

    def clamp(self, window: int) -> int:
        return max(min(window, self.max_rollouts), self.group_size)


@dataclass(frozen=True, kw_only=True)
class Window:
    size: int  # rollouts
    was_cut: bool = False
    queued_before: bool = False  # the previous sample had a queue


@dataclass(frozen=True, kw_only=True)
class LoadSample:
    """The engine's load since the previous sample."""

    running_requests: int
    waiting_requests: int
    kv_cache_frac: float
    retractions: int  # because KV memory ran out
    held: int  # rollouts that hold a permit


def aimd_update(window: Window, load: LoadSample, bounds: WindowLimits) -> Window:
    """Return the window until the next sample."""
    queue = load.waiting_requests > QUEUE_SHARE * max(load.running_requests, 1)
    observed = replace(window, queued_before=queue)
    if load.retractions:
        return _cut(observed, 0.8, bounds)
    if load.kv_cache_frac > CUT_ABOVE_KV or (queue and window.queued_before):
        return _cut(observed, 0.9, bounds)
    has_room = load.kv_cache_frac < GROW_BELOW_KV and not load.waiting_requests
    if not has_room or load.held < window.size:
        return observed
    more = bounds.group_size if window.was_cut else max(window.size // 4, bounds.group_size)
    return replace(observed, size=bounds.clamp(window.size + more))


def _cut(window: Window, factor: float, bounds: WindowLimits) -> Window:
    # The next sample may still show the queue from before the cut, so a queue has to be seen twice again.
    return replace(window, size=bounds.clamp(int(window.size * factor)), was_cut=True, queued_before=False)
