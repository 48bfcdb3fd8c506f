"""Input and output of an extraction process."""

from __future__ import annotations

from pathlib import Path

import msgspec

from oolong.contracts.model_report import RESULT_FILE, ModelReport

TAR_FILE = "model.tar"


class UnfoldJob(msgspec.Struct, frozen=True, kw_only=True):
    archive: str  # path or signed URL


def read_result(folder: Path) -> ModelReport | None:
    """None while it is not written, which happens at once and last."""
    try:
        return msgspec.json.decode((folder / RESULT_FILE).read_bytes(), type=ModelReport)
    except FileNotFoundError:
        return None
