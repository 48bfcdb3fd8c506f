"""Tensors of safetensors files, read and written in pieces."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
FORMATS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}  # by the name in a RunSpec
MAX_HEADER_BYTES = 100 * 1024 * 1024
PIECE_BYTES = 32 * 1024 * 1024  # of float32 in memory at a time


class MergeError(Exception):
    """The adapter and the base model do not fit together, or a file is damaged."""


@dataclass(frozen=True)
class StoredTensor:
    name: str
    format: str  # of ITEM_BYTES
    shape: tuple[int, ...]
    file: IO[bytes]
    offset: int  # of its first byte in the file

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_items(self) -> int:
        return self.items // max(self.rows, 1)

    @property
    def items(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def read(self, first: int = 0, end: int | None = None) -> Floats:
        """Rows `first` to `end`, as float32 of shape [rows, items of a row]."""
        end = self.rows if end is None else end
        width = self.row_items * ITEM_BYTES[self.format]
        self.file.seek(self.offset + first * width)
        data = self.file.read((end - first) * width)
        if len(data) != (end - first) * width:
            raise MergeError(f"the file of tensor {self.name} ends inside of it")
        return decode(data, self.format).reshape(end - first, self.row_items)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows that together are the tensor."""
        step = max(1, PIECE_BYTES // max(1, self.row_items * 4))
        for first in range(0, self.rows, step):
            yield first, min(self.rows, first + step)


def read_tensors(file: IO[bytes], *, start: int = 0, name: str) -> dict[str, StoredTensor]:
    """The tensors of the safetensors file that begins at `start`. Reads its header only."""
    file.seek(start)
    prefix = file.read(8)
    size = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
    if not 0 < size <= MAX_HEADER_BYTES:
        raise MergeError(f"{name} is not a safetensors file")
    try:
        header: dict[str, Any] = json.loads(file.read(size))
        found = {
            key: StoredTensor(
                key, entry["dtype"], tuple(entry["shape"]), file, start + 8 + size + entry["data_offsets"][0]
            )
            for key, entry in header.items()
            if key != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MergeError(f"{name} has a damaged header: {error}") from error
    for tensor in found.values():
        if tensor.format not in ITEM_BYTES:
            raise MergeError(
                f"{name}: tensor {tensor.name} is {tensor.format}; models of {', '.join(ITEM_BYTES)} can be merged"
            )
    return found


def header_of(tensors: Mapping[str, StoredTensor], *, format: str) -> bytes:
    """The header of a safetensors file with these tensors, in their order, in one format."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        size = tensor.items * ITEM_BYTES[format]
        entries[name] = {
            "dtype": format,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def decode(data: bytes, format: str) -> Floats:
    if format == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, "<f4" if format == "F32" else "<f2").astype(np.float32)


def encode(values: Floats, format: str) -> bytes:
    """Round to nearest, ties to even, as torch does."""
    if format == "BF16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        quiet = np.where(np.isnan(values), np.uint32(0x7FC0), rounded)
        return quiet.astype("<u2").tobytes()
    return values.astype("<f4" if format == "F32" else "<f2").tobytes()


def rounded(values: Floats, format: str) -> Floats:
    return values if format == "F32" else decode(encode(values, format), format).reshape(values.shape)
