"""What the check of a model's files found: by the control plane of an upload, by a node of a path that it offers."""

from __future__ import annotations

import msgspec


class Fault(msgspec.Struct, frozen=True):
    pointer: str  # "/files/config.json", "/tensors/model.norm.weight"
    code: str
    message: str


class ModelFile(msgspec.Struct, frozen=True):
    name: str  # below the model's directory
    bytes: int
    sha256: str


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Without faults it is a model that runs may start from."""

    message: str = ""  # why it is not
    faults: list[Fault] = []
    family: str = ""
    parameters: int = 0
    tensors: int = 0
    dtypes: dict[str, int] = {}  # parameters by dtype
    tokens: int = 0  # ids of the tokenizer
    config: dict[str, object] = {}
    prompt: str = ""  # what the chat template makes of a small conversation
    isolation: str = ""  # where it was rendered: sandbox, or process
    files: list[ModelFile] = []
    manifest_sha256: str = ""  # of all names and hashes: the same files are the same model
    tar_sha256: str = ""  # of an upload: the archive that is kept
    tar_bytes: int = 0


# A model below a directory that a node offers, checked by that node.
ORDER_FILE, RESULT_FILE = "order.json", "result.json"


class CheckOrder(msgspec.Struct, frozen=True, kw_only=True):
    """POST /api/v1/agent/model-checks/{check_id}/begin: the check is this node's. Asked again, the same order."""

    check_id: str
    path: str
