"""The complete check of a model directory, shared by uploads, imports and nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from oolong.contracts.model_report import Fault, ModelFile, ModelReport
from oolong.model_validation.directory import check_directory
from oolong.model_validation.errors import InvalidModel
from oolong.model_validation.rendering import render_preview

CHUNK = 1024 * 1024


def validate_model(root: Path, *, within: Path | None = None) -> ModelReport:
    """Report the facts of the model or all its faults. `within`: where links may lead (`check_directory`)."""
    try:
        facts = check_directory(root, within=within)
        assert facts.chat is not None  # else it is refused
        preview = render_preview(facts.chat)
        if preview.fault is not None:
            raise InvalidModel([preview.fault])
    except InvalidModel as error:
        return invalid_report(str(error), error.faults)
    files = manifest(facts.files)
    return ModelReport(
        family=facts.family, parameters=facts.parameters, tensors=facts.tensors, dtypes=facts.dtypes,
        tokens=facts.tokens, config=facts.config, prompt=preview.text, isolation=preview.isolation, files=files,
        manifest_sha256=hashlib.sha256("".join(f"{one.sha256}  {one.name}\n" for one in files).encode()).hexdigest(),
    )  # fmt: skip


def invalid_report(message: str, faults: Sequence[Fault]) -> ModelReport:
    return ModelReport(message=message, faults=list(faults))


def manifest(files: Mapping[str, Path]) -> list[ModelFile]:
    found = []
    for name, path in sorted(files.items()):
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
        found.append(ModelFile(name, size, digest.hexdigest()))
    return found
