"""The sandbox for code and data of users: standard library only, importable by the control plane and on nodes.

    probe_result = probe_sandbox()                       # tries this machine, about a second; once per process
    sandbox = probe_result.require()               # raises SandboxUnsupported with the way out where it must
    outcome = sandbox.run(Program(source="report(payload * 2)", tests=(Test(payload=21),)), Limits())
    outcome.only.status, outcome.only.value    # Status.OK, b"42"

What it promises, and what not: SECURITY.md.
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
