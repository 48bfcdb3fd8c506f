"""Reads the header of a safetensors file. The file is untrusted, so every value is checked."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oolong.model_validation.errors import MAX_NAME, printable

MAX_HEADER_BYTES = 25_000_000
MAX_TENSORS = 200_000
MAX_DIMENSIONS = 8
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    "U16": 2, "U32": 4, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.shape)


def read_header(path: Path) -> list[Tensor]:
    """All tensors of the file. Raises ValueError unless the header accounts for every byte."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length_bytes = file.read(8)
        if len(length_bytes) < 8:
            raise ValueError(f"truncated: {size} bytes cannot hold a header")
        (length,) = struct.unpack("<Q", length_bytes)
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"the header claims {length} bytes, at most {MAX_HEADER_BYTES} are read")
        if 8 + length > size:
            raise ValueError(f"truncated: the header needs {8 + length} bytes, the file has {size}")
        try:
            header = json.loads(file.read(length), object_pairs_hook=_reject_duplicate_keys)
        except RecursionError as error:
            raise ValueError("the header is not JSON: nested too deeply") from error
        except ValueError as error:
            raise ValueError(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise ValueError(f"the header names {len(header)} tensors, at most {MAX_TENSORS} are taken")
    located = [_tensor(name, entry) for name, entry in header.items()]
    _check_offsets(located, data_bytes=size - 8 - length)
    return [tensor for tensor, _, _ in located]


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twin = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twin[:MAX_NAME]!r} is there twice")
    return document


def _tensor(name: str, entry: Any) -> tuple[Tensor, int, int]:
    """The tensor and where its bytes begin and end, counted from the end of the header."""
    named = repr(name[:MAX_NAME])
    if len(name) > MAX_NAME:
        raise ValueError(f"the name of tensor {named}… has {len(name)} characters, at most {MAX_NAME}")
    try:
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        first, last = offsets
        width = DTYPE_BYTES[dtype]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the header's entry {named} is malformed ({printable(repr(error), MAX_NAME)})"
        ) from error
    if not isinstance(shape, list) or not all(_is_size(value) for value in (*shape, first, last)):
        raise ValueError(
            f"the header's entry {named} is malformed (shape {printable(repr(shape), 200)}, "
            f"data_offsets {printable(repr(offsets), 200)}: whole numbers from 0)"
        )
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"tensor {named} has {len(shape)} dimensions, at most {MAX_DIMENSIONS}")
    tensor = Tensor(name, dtype, tuple(shape))
    if last - first != tensor.count * width:
        raise ValueError(
            f"tensor {named} of shape {shape} and {dtype} needs {tensor.count * width} bytes, has {last - first}"
        )
    return tensor, first, last


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check_offsets(located: list[tuple[Tensor, int, int]], *, data_bytes: int) -> None:
    """Require that each byte of the data belongs to exactly one tensor."""
    end = 0
    for tensor, first, last in sorted(located, key=lambda one: (one[1], one[2])):
        if first != end:
            how = "overlaps the one before it" if first < end else f"leaves bytes {end} to {first} to nobody"
            raise ValueError(f"tensor {tensor.name!r} begins at byte {first} and {how}")
        end = last
    if end != data_bytes:
        word = "truncated" if end > data_bytes else "too long"
        raise ValueError(f"{word}: its header describes {end} bytes of data, the file has {data_bytes}")
