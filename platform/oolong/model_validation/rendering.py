"""Renders a chat template once, in the sandbox, or in a process with limits where there is no sandbox.

Jinja's own sandbox keeps a template from Python's objects, but not from running for ever or filling the memory; the
limits here do, in both places.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from oolong.contracts.model_report import Fault
from oolong.model_validation import chat_template
from oolong.model_validation.chat_template import TemplateSource
from oolong.model_validation.errors import file_fault
from oolong.sandbox import MEBIBYTE, Limits, Program, SandboxUnsupported, Status, probe_sandbox
from oolong.sandbox.runtime_files import shared_packages

CONVERSATION = [
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": "5"},
    {"role": "user", "content": "And twice that?"},
]
CPU_SECONDS, WALL_SECONDS = 10, 60  # the second: on a machine that is busy with other things
MEMORY_BYTES = 512 * MEBIBYTE
TIME = ("template_time", f"it does not end within {CPU_SECONDS} s of computing")
MEMORY = ("template_memory", f"it takes more than {MEMORY_BYTES // MEBIBYTE} MiB of memory")


class Preview(msgspec.Struct, frozen=True):
    """The prompt that the template renders from a small conversation."""

    text: str = ""
    isolation: str = ""  # sandbox, or process where the machine has none
    fault: Fault | None = None


def render_preview(source: TemplateSource) -> Preview:
    asked = {"template": source.text, "special": source.special, "messages": CONVERSATION}
    try:
        isolation, found = "sandbox", _in_sandbox(asked)
    except SandboxUnsupported:
        isolation, found = "process", _in_process(asked)
    if found["code"]:
        message = f"the chat template of {source.file} cannot be used: {found['message']}"
        return Preview(isolation=isolation, fault=file_fault(source.file, found["code"], message))
    return Preview(text=found["text"], isolation=isolation)


def _in_sandbox(asked: dict[str, Any]) -> dict[str, str]:
    sandbox = probe_sandbox(slots=1).require()
    program = Program(
        source=Path(chat_template.__file__).read_text(), common=asked, imports=("jinja2",),
        packages=(shared_packages("jinja2", "markupsafe"),),
    )  # fmt: skip
    limits = Limits(
        cpu_seconds=CPU_SECONDS, wall_seconds=WALL_SECONDS, total_wall_seconds=WALL_SECONDS + 20,
        memory_bytes=MEMORY_BYTES, output_bytes=MEBIBYTE,
    )  # fmt: skip
    outcome = sandbox.run(program, limits)
    if outcome.error:
        return _refused("sandbox_error", outcome.error[:500])
    test = outcome.only
    if test.status is Status.OK and test.value is not None:
        return dict(json.loads(test.value))
    said = test.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
    return {
        Status.CPU_LIMIT: _refused(*TIME), Status.WALL_LIMIT: _refused(*TIME), Status.MEMORY_LIMIT: _refused(*MEMORY),
    }.get(test.status, _refused("template_error", f"{test.status}: {said}"))  # fmt: skip


def _in_process(asked: dict[str, Any]) -> dict[str, str]:
    try:
        ended = subprocess.run(
            [sys.executable, "-I", chat_template.__file__], input=json.dumps(asked).encode(), capture_output=True,
            env={"LANG": "C.UTF-8"}, timeout=WALL_SECONDS, check=False, preexec_fn=_limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return _refused(*TIME)
    if ended.returncode == 0:
        return dict(json.loads(ended.stdout))
    said = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
    if "MemoryError" in said:
        return _refused(*MEMORY)
    return _refused(*TIME) if ended.returncode < 0 else _refused("template_error", said)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _refused(code: str, message: str) -> dict[str, str]:
    return {"text": "", "code": code, "message": message}
