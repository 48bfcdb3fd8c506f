"""Sandbox for untrusted code and data. Standard library only, so the control plane and the nodes share it.

    probe_result = probe_sandbox()       # tests this machine in about a second; call it once per process
    sandbox = probe_result.require()     # raises SandboxUnsupported, with the command that fixes it
    result = sandbox.run(Program(source="report(payload * 2)", tests=(Test(payload=21),)), Limits())
    result.only.status, result.only.value    # Status.OK, b"42"

For the guarantees and their limits, see SECURITY.md.
"""

from oolong.sandbox.capabilities import Capabilities, SandboxUnsupported
from oolong.sandbox.isolation import IsolationConfig
from oolong.sandbox.limits import MEBIBYTE, Limits
from oolong.sandbox.probe import ProbeResult, probe_sandbox
from oolong.sandbox.program import GUEST_SOCKET, Program, Test
from oolong.sandbox.result import SandboxResult, Status, TestResult
from oolong.sandbox.sandbox import Sandbox
from oolong.sandbox.supervisor import OnTest

__all__ = [
    "GUEST_SOCKET",
    "MEBIBYTE",
    "Capabilities",
    "IsolationConfig",
    "Limits",
    "OnTest",
    "ProbeResult",
    "Program",
    "Sandbox",
    "SandboxResult",
    "SandboxUnsupported",
    "Status",
    "Test",
    "TestResult",
    "probe_sandbox",
]
