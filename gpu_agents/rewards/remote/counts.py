"""What the reward service measures of the services that its rewards ask."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

KEPT_LATENCIES = 4096
KEPT_EXAMPLES = 5


@dataclass(kw_only=True)
class RemoteCounts:
    requests: int = 0  # sent, those sent again included
    retries: int = 0
    failures: int = 0  # requests given up
    latencies: deque[float] = field(
        default_factory=lambda: deque(maxlen=KEPT_LATENCIES)
    )  # of answers, newest last
    judge_input_tokens: int = 0
    judge_output_tokens: int = 0
    judge_cache_hits: int = 0
    unparsable: int = 0
    examples: deque[dict[str, Any]] = field(
        default_factory=lambda: deque(maxlen=KEPT_EXAMPLES)
    )  # of unparsable ones

    def state(self) -> dict[str, Any]:
        """For the run's page."""
        return {
            "requests": self.requests,
            "retries": self.retries,
            "failures": self.failures,
            "judge": {
                "input_tokens": self.judge_input_tokens,
                "output_tokens": self.judge_output_tokens,
                "cache_hits": self.judge_cache_hits,
                "unparsable": self.unparsable,
                "unparsable_examples": list(self.examples),
            },
        }
