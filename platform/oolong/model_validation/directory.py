"""Checks a Hugging Face directory: files, config, tokenizer and tensors. Reports all faults at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from oolong.contracts.model_report import Fault
from oolong.model_validation import chat_template, families, tensor_manifest
from oolong.model_validation.errors import InvalidModel, file_fault, printable
from oolong.model_validation.safetensors_header import MAX_TENSORS, Tensor, read_header

MAX_FILES = 2_000
MAX_JSON_BYTES = 64 * 1024 * 1024
MAX_CONFIG_BYTES = 1024 * 1024  # it is kept with the model, and shown
MAX_TOKEN = 2**31
PICKLED = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".npy", ".npz", ".msgpack", ".h5"})
CODE = frozenset({".py", ".so", ".sh", ".pyc"})
INDEX = "model.safetensors.index.json"
DOCUMENTS = ("config.json", "tokenizer.json", "tokenizer_config.json", INDEX)


@dataclass
class ModelFacts:
    family: str = ""  # config.json's model_type
    parameters: int = 0  # of the weights that are loaded
    tensors: int = 0
    dtypes: dict[str, int] = field(default_factory=dict)  # parameters by dtype
    config: dict[str, Any] = field(default_factory=dict)
    tokens: int = 0  # ids of the tokenizer: one more than its highest
    chat: chat_template.TemplateSource | None = None
    files: dict[str, Path] = field(default_factory=dict)  # by name


def find_root(folder: Path) -> Path:
    """The folder with config.json: the archive's own root, or its single top directory."""
    if (folder / "config.json").is_file():
        return folder
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def check_directory(root: Path, *, within: Path | None = None) -> ModelFacts:
    """Return the facts of the model, or raise InvalidModel with all faults. Links may only lead below `within`."""
    faults: list[Fault] = []
    facts = ModelFacts(files=_files(root, within, faults))
    documents = {
        name: _document(name, facts.files[name], faults) for name in DOCUMENTS if name in facts.files
    }
    for name in ("config.json", "tokenizer.json"):
        if name not in facts.files:
            faults.append(file_fault(name, "missing_file", f"{name} is missing"))
    facts.config = documents.get("config.json") or {}
    family = facts.config.get("model_type")
    facts.family = family if isinstance(family, str) else ""
    if documents.get("config.json") is not None and not facts.family:
        faults.append(
            file_fault("config.json", "no_model_type", "config.json names no model_type that is a text")
        )
    if (tokenizer := documents.get("tokenizer.json")) is not None:
        facts.tokens = _tokens(tokenizer, facts, faults)
    _check_weights(facts, documents.get(INDEX), faults)
    if "config.json" in facts.files:
        settings = documents.get("tokenizer_config.json") or {}
        facts.chat = chat_template.find_template(facts.files, settings)
        if facts.chat is None:
            message = (
                "the model has no chat template, by which every run makes its prompts: add chat_template.jinja, or "
                "chat_template in tokenizer_config.json"
            )
            faults.append(file_fault("chat_template.jinja", "no_chat_template", message))
    if faults:
        raise InvalidModel(faults)
    return facts


def _files(root: Path, within: Path | None, faults: list[Fault]) -> dict[str, Path]:
    """Plain files by their names. Pickles and code are refused by name."""
    bounds = (within or root).resolve()
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(folder) / name
            shown = str(path.relative_to(root))
            if len(found) >= MAX_FILES:
                message = f"the directory has more than {MAX_FILES} files"
                raise InvalidModel([*faults, file_fault(shown, "too_many_files", message)])
            if fault := _file_fault(shown, path, bounds):
                faults.append(fault)
            else:
                found[shown] = path
    return dict(sorted(found.items()))


def _file_fault(name: str, path: Path, bounds: Path) -> Fault | None:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in PICKLED:
        message = f"{name} may run code when loaded; only *.safetensors weights are taken"
        return file_fault(name, "pickle", message)
    if suffix in CODE:
        message = f"{name} is code; models that need their own code are not taken"
        return file_fault(name, "code", message)
    if path.is_symlink() and not path.resolve().is_relative_to(bounds):
        return file_fault(name, "link_outside", f"{name} is a link that leads out of {bounds}")
    if not path.is_file():
        return file_fault(name, "not_a_file", f"{name} is no plain file, nor a link to one")
    return None


def _document(name: str, path: Path, faults: list[Fault]) -> dict[str, Any] | None:
    maximum = MAX_CONFIG_BYTES if name == "config.json" else MAX_JSON_BYTES
    if (size := path.stat().st_size) > maximum:
        faults.append(file_fault(name, "too_large", f"{name} has {size} bytes, at most {maximum} are taken"))
        return None
    try:
        document = read_json(path)
    except ValueError as error:
        faults.append(file_fault(name, "not_json", f"{name}: {error}"))
        return None
    if "auto_map" in document:
        message = f"{name} has auto_map, which would run code of the model; it is not taken"
        faults.append(file_fault(name, "auto_map", message))
    return document


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ValueError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def _tokens(tokenizer: Mapping[str, Any], facts: ModelFacts, faults: list[Fault]) -> int:
    """How many rows of the embedding its ids need; the known families must have them."""
    model, added = tokenizer.get("model"), tokenizer.get("added_tokens") or []
    try:
        vocabulary = model["vocab"]  # type: ignore[index]
        if not isinstance(vocabulary, dict | list):
            raise TypeError("vocab is no object and no list")
        named = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))[-1:]
        ids = [*named, *(token["id"] for token in added)]
        if (odd := next((one for one in ids if not _is_id(one)), None)) is not None:
            raise TypeError(f"id {printable(repr(odd), 100)}")
        tokens = 1 + max(ids, default=-1)
    except (KeyError, TypeError) as error:
        message = f"tokenizer.json has no vocabulary with whole numbers as ids ({error!r}): save it as a fast tokenizer"
        faults.append(file_fault("tokenizer.json", "bad_tokenizer", message))
        return 0
    rows = facts.config.get("vocab_size")
    if facts.family in families.LAYERS and isinstance(rows, int) and tokens > rows:
        message = f"tokenizer.json has ids up to {tokens - 1}, the config's vocab_size is {rows}"
        faults.append(file_fault("tokenizer.json", "too_many_tokens", message))
    return tokens


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_TOKEN


def _check_weights(facts: ModelFacts, index: Mapping[str, Any] | None, faults: list[Fault]) -> None:
    before = len(faults)
    weights = [name for name in facts.files if name.endswith(".safetensors") and "/" not in name]
    wanted = _loaded(weights, index, has_index=INDEX in facts.files, faults=faults)
    tensors: dict[str, Tensor] = {}
    for name in weights:
        try:
            held = read_header(facts.files[name])
        except ValueError as error:
            code = "truncated" if str(error).startswith("truncated") else "bad_header"
            faults.append(file_fault(name, code, f"{name}: {error}"))
            continue
        if len(tensors) + len(held) > MAX_TENSORS:
            message = f"with {name} the files name more than {MAX_TENSORS} tensors"
            raise InvalidModel([*faults, file_fault(name, "too_many_tensors", message)])
        for tensor in held:
            if tensor.name in tensors:
                message = f"{name} has tensor {tensor.name}, which another file has too"
                faults.append(file_fault(name, "twice", message))
            elif wanted is not None and wanted.get(tensor.name, name) != name:
                message = f"{INDEX} looks for tensor {tensor.name} in {wanted[tensor.name]}, it is in {name}"
                faults.append(file_fault(INDEX, "wrong_shard", message))
            tensors[tensor.name] = tensor
    for tensor in tensors.values():
        facts.dtypes[tensor.dtype] = facts.dtypes.get(tensor.dtype, 0) + tensor.count
    facts.tensors, facts.parameters = len(tensors), sum(facts.dtypes.values())
    if (
        facts.family and len(faults) == before
    ):  # else most of them would follow from a file that cannot be read
        faults.extend(tensor_manifest.find_faults(facts.config, tensors))


def _loaded(
    weights: list[str], index: Mapping[str, Any] | None, *, has_index: bool, faults: list[Fault]
) -> dict[str, str] | None:
    """Tensor → file by the index, None without one. Every file of weights is one that a loader would take."""
    if not weights:
        faults.append(file_fault("model.safetensors", "missing_file", "no *.safetensors file is there"))
    if not has_index:
        if len(weights) > 1:
            message = f"there are {len(weights)} files of weights and no {INDEX} that says what is in which"
            faults.append(file_fault(INDEX, "missing_file", message))
        return None
    if index is None:  # already reported as invalid JSON
        return None
    named = index.get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(file, str) for file in named.values()):
        faults.append(file_fault(INDEX, "bad_index", f"{INDEX} has no weight_map from tensors to files"))
        return None
    for missing in sorted(set(named.values()) - set(weights)):
        faults.append(file_fault(missing, "missing_file", f"{missing} is named in {INDEX} and is not there"))
    for unnamed in sorted(set(weights) - set(named.values())):
        message = (
            f"{unnamed} is not named in {INDEX}, and an engine may load it in place of the others: remove it"
        )
        faults.append(file_fault(unnamed, "unnamed_weights", message))
    return named
