"""Create a tiny model as a Hugging Face directory: `python -m trainers.models.tiny --out DIR [--family F] [--seed N]`.

It has 116 thousand parameters and a byte tokenizer, so that all of Oolong runs on a CPU. Each chat role is a single
token: at this size, spelling out "assistant" would take a third of a prompt.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oolong.samples.tiny_model import CHAT_TEMPLATE, SPECIAL_TOKENS
from trainers.models.families import FAMILIES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast

COMMON: dict[str, Any] = {
    "vocab_size": 264,  # 261 tokens, rounded up to a multiple of 8
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 192,
    "max_position_embeddings": 1024,
    "attention_dropout": 0.0,
    "initializer_range": 0.1,  # about 1 / sqrt(hidden_size); with 0.02 it learns far too slowly
    "bos_token_id": None,
    "pad_token_id": 256,
    "eos_token_id": 257,
    "dtype": "float32",
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, then pad, end and one token per role: 261 tokens, no merges. Any text round-trips."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={symbol: number for number, symbol in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    pad, end, *roles = SPECIAL_TOKENS
    tokenizer.add_special_tokens([*SPECIAL_TOKENS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        eos_token=end,
        extra_special_tokens=roles,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def tiny_config(family: str = "qwen3", **changes: Any) -> PreTrainedConfig:
    """A tiny config of any supported family; `changes` override fields."""
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **{**COMMON, **FAMILIES[family].tiny_config, **changes})


def make_tiny_model(directory: Path, *, seed: int = 1, family: str = "qwen3", **changes: Any) -> Path:
    """Write config, tokenizer and random float32 weights into `directory`."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(family, **changes), dtype=torch.float32)
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    (directory / "model.safetensors").chmod(
        0o644
    )  # safetensors writes mode 600, but agents may be other users
    byte_tokenizer().save_pretrained(directory)
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description="Create a tiny model with a byte tokenizer.")
    parser.add_argument("--out", type=Path, required=True, help="output directory")
    parser.add_argument("--family", default="qwen3", choices=FAMILIES, help="model_type of the config")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random weights")
    arguments = parser.parse_args()
    directory = make_tiny_model(arguments.out, seed=arguments.seed, family=arguments.family)
    print(f"tiny {arguments.family} written to {directory}")


if __name__ == "__main__":
    main()
