"""Model archives: what may be in one, what must be, and the deterministic tar that is kept.

Nothing is executed or unpickled here. Archive members are read one by one; links, devices, absolute names and
`..` are refused before a byte is written.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import os
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from control_plane.catalog.store import CHUNK, BlobWriter
from control_plane.common.errors import FieldError

MAX_FILES = 2_000
MAX_TOTAL_BYTES = 256 * 1024**3
SMALL_BYTES = 256 * 1024**2  # whatever the archive, so much may unfold
MOST_TIMES = 20
MAX_HEADER_BYTES = 100 * 1024 * 1024
MAX_JSON_BYTES = 64 * 1024 * 1024
PICKLED = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".npy", ".npz", ".msgpack", ".h5"})
CODE = frozenset({".py", ".so", ".sh", ".pyc"})
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    "U16": 2, "U32": 4, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


class Unusable(Exception):
    """The archive is refused; every fault names its file."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(error.message for error in errors))
        self.errors = errors


@dataclass
class ModelFacts:
    family: str = ""
    parameters: int = 0
    config: dict[str, Any] = field(default_factory=dict)


def extract(archive: IO[bytes], folder: Path, *, packed_bytes: int) -> None:
    """Unpack a tar (plain, gz, bz2, xz) into `folder`, without its single top directory if it has one.

    What unfolds is counted as it is decoded, headers and all: weights hardly shrink, so an archive of
    `packed_bytes` that becomes many times as large holds none.
    """
    most = min(MAX_TOTAL_BYTES, max(SMALL_BYTES, MOST_TIMES * packed_bytes))
    try:
        with tarfile.open(fileobj=cast(IO[bytes], _Decoded(archive, most)), mode="r|") as tar:
            _extract_members(tar, folder, most)
    except (tarfile.TarError, EOFError, OSError, ValueError, lzma.LZMAError) as error:
        raise Unusable(
            [FieldError("/upload_id", "not_an_archive", f"not a readable tar archive: {error}")]
        ) from error


class _Decoded:
    """The bytes of the tar itself, at most `most` of them."""

    def __init__(self, archive: IO[bytes], most: int) -> None:
        head = archive.read(6)
        whole = cast(IO[bytes], _Whole(head, archive))
        if head[:2] == b"\x1f\x8b":
            self._source: IO[bytes] = cast(IO[bytes], gzip.GzipFile(fileobj=whole))
        elif head[:3] == b"BZh":
            self._source = cast(IO[bytes], bz2.BZ2File(whole))
        elif head == b"\xfd7zXZ\x00":
            self._source = cast(IO[bytes], lzma.LZMAFile(whole))  # noqa: SIM115 - closing it closes nothing
        else:
            self._source = whole
        self._most, self._decoded = most, 0

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._decoded += len(data)
        if self._decoded > self._most:
            message = f"the archive unfolds to more than {self._most} bytes, too many for its size"
            raise Unusable([FieldError("/upload_id", "too_large", message)])
        return data


class _Whole(io.RawIOBase):
    """A stream of which the head was read already."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head:
            size = len(self._head) if size < 0 else size
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._rest.read(size)


def _extract_members(tar: tarfile.TarFile, folder: Path, most: int) -> None:
    written = files = 0
    for member in tar:
        name = _safe_name(member)
        if member.isdir():
            continue
        if not member.isreg():
            kind = "a link" if member.issym() or member.islnk() else "not a plain file"
            _refuse(member.name, "not_a_file", f"{member.name!r} is {kind}; only plain files are allowed")
        if member.sparse is not None:  # its holes are written as zeros that the archive does not have
            _refuse(member.name, "sparse", f"{member.name!r} is a sparse file; pack it without --sparse")
        files += 1
        if files > MAX_FILES or written + member.size > most:
            _refuse(member.name, "too_large", f"more than {MAX_FILES} files or {most} bytes")
        source = tar.extractfile(member)
        assert source is not None
        target = folder.joinpath(*name.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            _refuse(member.name, "twice", f"{member.name!r} is in the archive twice")
        with target.open("xb") as file:
            while chunk := source.read(CHUNK):
                written += len(chunk)
                if written > most:
                    _refuse(member.name, "too_large", f"the archive unfolds to more than {most} bytes")
                file.write(chunk)


def _safe_name(member: tarfile.TarInfo) -> PurePosixPath:
    name = PurePosixPath(member.name)
    parts = [part for part in name.parts if part != "."]
    if name.is_absolute() or ".." in parts or "\\" in member.name or "\x00" in member.name:
        _refuse(member.name, "unsafe_name", f"the name {member.name!r} leaves the archive's folder")
    return PurePosixPath(*parts) if parts else PurePosixPath("_")


def _refuse(name: str, code: str, message: str) -> None:
    raise Unusable([FieldError(f"/files/{_escape(name)}", code, message)])


def model_root(folder: Path) -> Path:
    """The folder with config.json: the archive's own root, or its single top directory."""
    if (folder / "config.json").is_file():
        return folder
    entries = list(folder.iterdir())
    if len(entries) == 1 and entries[0].is_dir():
        return entries[0]
    return folder


def check_model(root: Path) -> ModelFacts:
    """Raises Unusable with all faults at once."""
    errors: list[FieldError] = []
    facts = ModelFacts()

    def fault(name: str, code: str, message: str) -> None:
        errors.append(FieldError(f"/files/{_escape(name)}", code, message))

    files = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
    for name in files:
        suffix = PurePosixPath(name).suffix.lower()
        if suffix in PICKLED:
            fault(name, "pickle", f"{name} may run code when loaded; only *.safetensors weights are taken")
        elif suffix in CODE:
            fault(name, "code", f"{name} is code; models that need their own code are not taken")
    for name in ("config.json", "tokenizer.json"):
        if name not in files:
            fault(name, "missing_file", f"{name} is missing")
    weights = [name for name in files if name.endswith(".safetensors")]
    if not weights:
        fault("model.safetensors", "missing_file", "no *.safetensors file is there")
    for name in weights:
        try:
            facts.parameters += check_safetensors(files[name])
        except ValueError as error:
            fault(name, "truncated" if "truncated" in str(error) else "bad_header", f"{name}: {error}")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        if name not in files:
            continue
        try:
            document = _read_json(files[name])
        except ValueError as error:
            fault(name, "not_json", f"{name}: {error}")
            continue
        if "auto_map" in document:
            fault(
                name, "auto_map", f"{name} has auto_map, which would run code of the model; it is not taken"
            )
        if name == "config.json":
            facts.config, facts.family = document, str(document.get("model_type", ""))
            if not facts.family:
                fault(name, "no_model_type", "config.json names no model_type")
    for missing in _missing_shards(files):
        fault(missing, "missing_file", f"{missing} is named in model.safetensors.index.json and is not there")
    if errors:
        raise Unusable(errors)
    return facts


def check_safetensors(path: Path) -> int:
    """Parameters of one file, counted from its header. Raises ValueError when header and size do not agree."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length_bytes = file.read(8)
        if len(length_bytes) < 8:
            raise ValueError(f"truncated: {size} bytes cannot hold a header")
        (length,) = struct.unpack("<Q", length_bytes)
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"the header claims {length} bytes")
        if 8 + length > size:
            raise ValueError(f"truncated: the header needs {8 + length} bytes, the file has {size}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    parameters = end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
            count = math.prod(shape)
            wanted = count * DTYPE_BYTES[dtype]
            size_by_offsets = last - first
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the header's entry {name!r} is malformed ({error!r})") from error
        if size_by_offsets != wanted:
            raise ValueError(
                f"tensor {name!r} of shape {shape} and {dtype} needs {wanted} bytes, has {size_by_offsets}"
            )
        parameters, end = parameters + count, max(end, last)
    if 8 + length + end != size:
        word = "truncated" if 8 + length + end > size else "too long"
        raise ValueError(f"{word}: its header describes {8 + length + end} bytes, the file has {size}")
    return parameters


def _missing_shards(files: dict[str, Path]) -> list[str]:
    index = files.get("model.safetensors.index.json")
    if index is None:
        return []
    try:
        named = _read_json(index).get("weight_map", {})
    except ValueError:
        return []
    shards = named.values() if isinstance(named, dict) else []
    return sorted({str(name) for name in shards} - files.keys())


def _read_json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ValueError(f"larger than {MAX_JSON_BYTES} bytes")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def write_tar(root: Path, target: BlobWriter) -> None:
    """The same files always give the same bytes: sorted names, no times, no owners."""
    with tarfile.open(fileobj=_WriteOnly(target), mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for path in _files(root):
            info = tarfile.TarInfo(str(path.relative_to(root)))
            info.size, info.mode, info.mtime = path.stat().st_size, 0o644, 0
            with path.open("rb") as file:
                tar.addfile(info, file)


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            yield Path(folder) / name


class _WriteOnly:
    def __init__(self, target: BlobWriter) -> None:
        self._target = target

    def write(self, data: bytes) -> int:
        return self._target.write(data)


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
