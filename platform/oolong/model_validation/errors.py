"""Faults in the files of a model."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.contracts.model_report import Fault

MAX_FAULTS = 50  # a config that names other layers makes thousands of them
# Both quote what the files say, which may be megabytes.
MAX_MESSAGE, MAX_NAME = 1_000, 500


class InvalidModel(Exception):
    """The model is rejected. Every fault names its file or tensor."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = list(faults[:MAX_FAULTS])
        if len(faults) > MAX_FAULTS:
            more = f"{len(faults) - MAX_FAULTS} more faults are not listed"
            self.faults.append(Fault("", "more", more))
        super().__init__("; ".join(fault.message for fault in self.faults[:5]))


def file_fault(name: str, code: str, message: str) -> Fault:
    return Fault(f"/files/{escaped(name)}", code, printable(message))


def tensor_fault(name: str, code: str, message: str) -> Fault:
    return Fault(f"/tensors/{escaped(name)}", code, printable(message))


def escaped(name: str) -> str:
    """Escape and truncate a name for a JSON pointer."""
    return printable(name, MAX_NAME).replace("~", "~0").replace("/", "~1")


def printable(text: str, maximum: int = MAX_MESSAGE) -> str:
    """What a reader gets of it; what is no text in UTF-8 is printable with its bytes written out."""
    cut = text if len(text) <= maximum else f"{text[: maximum - 1]}…"
    return cut.encode(errors="backslashreplace").decode()
