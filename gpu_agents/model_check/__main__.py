"""`python -m gpu_agents.model_check FOLDER ROOT…`: validate the model in order.json and write result.json."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import msgspec

from oolong.contracts.model_paths import root_of
from oolong.contracts.model_report import ORDER_FILE, RESULT_FILE, CheckOrder, Fault, ModelReport
from oolong.model_validation import invalid_report, validate_model
from oolong.sandbox import MEBIBYTE

MEMORY_BYTES = 4 * 1024 * MEBIBYTE


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder, roots = Path(sys.argv[1]), sys.argv[2:]
    order = msgspec.json.decode((folder / ORDER_FILE).read_bytes(), type=CheckOrder)
    unfinished = folder / f"{RESULT_FILE}.tmp"
    unfinished.write_bytes(msgspec.json.encode(check(order.path, roots)))
    unfinished.rename(folder / RESULT_FILE)
    return 0


def check(path: str, roots: list[str]) -> ModelReport:
    """Validate a model. Its path comes from the network, so it must lie below one of the node's roots."""
    root = root_of(path, roots)
    if root is None:
        return _invalid("path_not_offered", f"this node does not offer {path}")
    directory = Path(path)
    if not directory.exists():
        return _invalid("not_there", f"{path} does not exist")
    if not directory.resolve().is_relative_to(Path(root).resolve()):
        return _invalid("link_outside", f"{path} leads out of {root}, a model root of this node")
    if not directory.is_dir():
        return _invalid("not_a_directory", f"{path} is not a directory")
    try:
        return validate_model(directory.resolve(), within=Path(root))
    except OSError as error:
        return _invalid("not_readable", f"{error.filename or path} cannot be read: {error.strerror or error}")


def _invalid(code: str, message: str) -> ModelReport:
    return invalid_report(message, [Fault("/path", code, message)])


if __name__ == "__main__":
    sys.exit(main())
