"""The event types of webhooks. A type is a line here, and one call of `outbox.emit` where it happens."""

from __future__ import annotations

from fnmatch import fnmatchcase

EVENT_TYPES: dict[str, str] = {
    "run.queued": "a run was submitted, resumed, or goes back to the queue for a new attempt",
    "run.starting": "a run got its slots",
    "run.running": "every job of a run runs",
    "run.recovering": "a run lost its attempt and will have another",
    "run.pausing": "a pause was asked for",
    "run.paused": "a run rests; `fault` says whether it needs somebody",
    "run.stopping": "an end was asked for",
    "run.finalizing": "the work is done; the last lines and the checkpoint follow",
    "run.succeeded": "a run has done all its work",
    "run.stopped": "a run was ended before its work was done",
    "run.failed": "a run has failed; `reason`, `fault` and `advice` say how",
    "alert.fired": "an alert rule speaks about a run",
    "alert.resolved": "what it said does not hold any more",
    "checkpoint.stored": "a checkpoint is in the store",
    "checkpoint.promoted": "an alias means another checkpoint",
    "node.unresponsive": "a node of the pool is silent",
    "node.lost": "a node of the pool is given up",
    "node.quarantined": "attempts of several runs failed on a node, and no new jobs start there",
    "sweep.finished": "every run of a sweep has ended, or the sweep was cancelled",
    "webhook.disabled": "another webhook of the project was turned off, because it failed for too long",
    "webhook.test": "somebody asked for a test; it is sent to that webhook alone",
}
TYPE_NAMES = list(EVENT_TYPES)
TEST_ONLY = frozenset({"webhook.test"})


def matches(patterns: list[str], type: str) -> bool:
    """`run.*` is every type of runs, `*` every type."""
    return any(fnmatchcase(type, pattern) for pattern in patterns)


def unknown_patterns(patterns: list[str]) -> list[str]:
    """Patterns that no type can ever match."""
    known = [type for type in EVENT_TYPES if type not in TEST_ONLY]
    return [pattern for pattern in patterns if not any(fnmatchcase(type, pattern) for type in known)]
