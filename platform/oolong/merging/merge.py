"""The weights of a model with adapters, as the bytes of one safetensors file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oolong.contracts.lora_adapter import (
    ADAPTER_CONFIG_FILE,
    ADAPTER_WEIGHTS_FILE,
    BASE_FILE,
    peft_names,
)
from oolong.merging.folders import Folder, model_tensors, read_json, tensors_in
from oolong.merging.tensors import (
    FORMATS,
    ITEM_BYTES,
    Floats,
    MergeError,
    StoredTensor,
    encode,
    header_of,
    rounded,
)


@dataclass(frozen=True)
class Adapter:
    """A PEFT adapter of a checkpoint. `format` is the compute type of the trainer, which rounds base and result."""

    scale: float
    format: str
    layers: Mapping[str, tuple[StoredTensor, StoredTensor]]  # A and B by the name of the weight

    @classmethod
    def of(cls, folder: Folder) -> Adapter:
        config, base = read_json(folder, ADAPTER_CONFIG_FILE), read_json(folder, BASE_FILE)
        tensors = tensors_in(folder, ADAPTER_WEIGHTS_FILE)
        try:
            scale, format = float(config["lora_alpha"]) / int(config["r"]), FORMATS[base["dtype"]]
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise MergeError(
                f"{ADAPTER_CONFIG_FILE} or {BASE_FILE} of the adapter is incomplete: {error}"
            ) from error
        layers = {}
        for name in tensors:
            layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            a, b = peft_names(layer)
            if a in tensors and b in tensors:
                layers[f"{layer}.weight"] = (tensors[a], tensors[b])
        if len(layers) * 2 != len(tensors):
            raise MergeError(f"{ADAPTER_WEIGHTS_FILE} holds tensors that are no pairs of A and B")
        return cls(scale, format, layers)


class MergedWeights:
    """A model with adapters, the first trained on the model and each other on what the ones before it make."""

    def __init__(self, model: Folder, adapters: Sequence[Adapter]) -> None:
        """Raises MergeError where an adapter is for another model."""
        self._tensors, self._adapters = model_tensors(model), adapters
        for adapter in adapters:
            for name, (a, b) in adapter.layers.items():
                weight = self._tensors.get(name)
                if weight is None:
                    raise MergeError(f"the adapter is for another model: the base model has no tensor {name}")
                if weight.shape != (b.shape[0], a.shape[1]) or a.shape[0] != b.shape[1]:
                    raise MergeError(
                        f"the adapter is for another model: {name} is {list(weight.shape)} in the base model, the "
                        f"adapter's A is {list(a.shape)} and B {list(b.shape)}"
                    )
        self._format = adapters[-1].format
        self._header = header_of(self._tensors, format=self._format)
        items = sum(tensor.items for tensor in self._tensors.values())
        self.bytes = len(self._header) + items * ITEM_BYTES[self._format]

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the file. At most some tens of megabytes are in memory."""
        yield self._header
        for name, tensor in self._tensors.items():
            factors = [
                (one.format, one.scale, one.layers[name][0].read(), one.layers[name][1])
                if name in one.layers
                else (one.format, 0.0, None, None)
                for one in self._adapters
            ]
            for first, end in tensor.pieces():
                values: Floats = tensor.read(first, end)
                for format, scale, a, b in factors:
                    values = rounded(values, format)
                    if a is not None and b is not None:
                        values = rounded(values + (b.read(first, end) @ a) * np.float32(scale), format)
                yield encode(values, self._format)
