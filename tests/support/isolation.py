"""Whether this machine can isolate code at all, asked of the kernel and not of our sandbox.

A test that needs a sandbox is skipped only where the kernel refuses what any sandbox needs, for a reason that
tests/allowed_skips.txt has. Where the kernel allows it and there is no sandbox all the same, that is a fault of ours:
the test fails.
"""

from __future__ import annotations

import functools

import pytest

from oolong.sandbox import Capabilities, ProbeResult, Sandbox, kernel

REASON = "this machine cannot isolate code of users"
namespace_error = functools.cache(kernel.namespace_error)


def require_isolation(capabilities: Capabilities) -> None:
    """Skip the test where the kernel isolates nobody; fail it where only our sandbox does not."""
    if capabilities.runs_code:
        return
    said = f"{capabilities.message}; {capabilities.command}"
    if refusal := namespace_error():
        pytest.skip(f"{REASON}: {refusal} ({said})")
    pytest.fail(f"the kernel isolates, and there is no sandbox: {said}")


def sandbox_or_skip(probe_result: ProbeResult) -> Sandbox:
    require_isolation(probe_result.capabilities)
    return probe_result.require()
