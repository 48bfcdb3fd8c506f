"""The sandbox for code and data of users: standard library only, importable by the control plane and on nodes.

    findings = examine()                       # tries this machine, about a second; once per process
    sandbox = findings.require()               # raises SandboxRefused with the way out where it must
    outcome = sandbox.run(Program(source="report(payload * 2)", tests=(Test(payload=21),)), Limits())
    outcome.only.status, outcome.only.value    # Status.OK, b"42"

What it promises, and what not: SECURITY.md.
"""

from oolong.sandbox.box import Sandbox
from oolong.sandbox.canary import Findings, examine
from oolong.sandbox.capabilities import Capabilities, SandboxRefused
from oolong.sandbox.limits import MEBIBYTE, Limits
from oolong.sandbox.means import Means
from oolong.sandbox.outcome import Outcome, Status, TestOutcome
from oolong.sandbox.program import SOCKET_INSIDE, Program, Test
from oolong.sandbox.supervisor import Take

__all__ = [
    "MEBIBYTE",
    "SOCKET_INSIDE",
    "Capabilities",
    "Findings",
    "Limits",
    "Means",
    "Outcome",
    "Program",
    "Sandbox",
    "SandboxRefused",
    "Status",
    "Take",
    "Test",
    "TestOutcome",
    "examine",
]
