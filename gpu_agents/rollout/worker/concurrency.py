"""How many members a worker keeps in its engine at once: a window that follows what the engine says of itself.

Increase as long as it pays, decrease at once when it hurts (AIMD, Chiu and Jain 1989), with a fast start as in TCP:
  retractions             the KV cache ran out and work is done twice:                    x 0.8
  KV share over 0.9       it is about to:                                                 x 0.9
  a queue, twice in a row the engine takes in more than it decodes:                       x 0.9
  KV share under 0.7, no queue, the window full
                          there is room: x 1.25 before the first cut, + one group after it
Between 0.7 and 0.9 it holds. A retraction by a weight load is none of these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

GROW_BELOW_KV = 0.7
CUT_ABOVE_KV = 0.9
QUEUE_SHARE = 0.1  # waiting over running requests; less is the churn of requests that come and go


@dataclass(frozen=True, kw_only=True)
class WindowLimits:
    group_size: int  # the window moves in whole groups, and never holds less than one
    most: int  # rollout.engine_max_running_requests
    kv_tokens: int  # rollout.engine_max_total_tokens
    longest_tokens: int  # prompt and completion, at most

    def first_window(self) -> int:
        """As many as fit at their full length: none of them can be retracted, whatever they turn out to be."""
        return self.clamp(self.kv_tokens // self.longest_tokens)

    def clamp(self, window: int) -> int:
        return max(min(window, self.most), self.group_size)


@dataclass(frozen=True, kw_only=True)
class Window:
    size: int  # members
    was_cut: bool = False
    queued_before: bool = False  # the last reading had a queue


@dataclass(frozen=True, kw_only=True)
class LoadSample:
    """Between two looks at the engine."""

    running_requests: int
    waiting_requests: int
    kv_cache_frac: float
    retractions: int  # for want of KV memory
    held: int  # members with a place in the window


def aimd_update(window: Window, pressure: LoadSample, bounds: WindowLimits) -> Window:
    """The window until the next look."""
    queue = pressure.waiting_requests > QUEUE_SHARE * max(pressure.running_requests, 1)
    looked = replace(window, queued_before=queue)
    if pressure.retractions:
        return _cut(looked, 0.8, bounds)
    if pressure.kv_cache_frac > CUT_ABOVE_KV or (queue and window.queued_before):
        return _cut(looked, 0.9, bounds)
    has_room = pressure.kv_cache_frac < GROW_BELOW_KV and not pressure.waiting_requests
    if not has_room or pressure.held < window.size:
        return looked
    more = bounds.group_size if window.was_cut else max(window.size // 4, bounds.group_size)
    return replace(looked, size=bounds.clamp(window.size + more))


def _cut(window: Window, factor: float, bounds: WindowLimits) -> Window:
    # The reading that follows a cut may still show the queue from before it: it takes two again.
    return replace(window, size=bounds.clamp(int(window.size * factor)), was_cut=True, queued_before=False)
