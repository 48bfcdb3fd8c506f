"""What is wrong with the files of a model."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.contracts.model_report import Fault

MOST_SHOWN = 50  # a config that names other layers makes thousands of them


class Unusable(Exception):
    """The files are refused; every fault names its file or tensor."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = list(faults[:MOST_SHOWN])
        if len(faults) > MOST_SHOWN:
            more = f"{len(faults) - MOST_SHOWN} more faults are not listed"
            self.faults.append(Fault("", "more", more))
        super().__init__("; ".join(fault.message for fault in self.faults[:5]))


def of_file(name: str, code: str, message: str) -> Fault:
    return Fault(f"/files/{escaped(name)}", code, message)


def of_tensor(name: str, code: str, message: str) -> Fault:
    return Fault(f"/tensors/{escaped(name)}", code, message)


def escaped(name: str) -> str:
    """As a part of a JSON pointer. A name that is no text in UTF-8 is shown with its bytes written out."""
    name = name.encode(errors="backslashreplace").decode()
    return name.replace("~", "~0").replace("/", "~1")
