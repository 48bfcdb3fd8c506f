"""Run by the node Python: a tiny random model that often writes a 0 or a 1 and ends its completions.

`lively_model.py DIRECTORY`. Random weights alone would hardly ever finish, so every reward would be 0 and no
gradient would flow. A direction common to all embeddings, twice as strong in the digits and the end token, makes
those likely without any training: about two completions in three end within 48 tokens, half of them rightly.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

from trainers.models.tiny import make_tiny_model

LIKELY = {"0": 0.10, "1": 0.10, "<|end|>": 0.05}  # text -> share of the common direction on top


def main(directory: Path) -> None:
    make_tiny_model(directory)
    model = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        common = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(2))
        table += 0.05 * common
        for text, share in LIKELY.items():
            table[tokenizer.convert_tokens_to_ids(text)] += share * common
    model.save_pretrained(directory)
    (directory / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
