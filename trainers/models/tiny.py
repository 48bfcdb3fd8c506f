"""Make a tiny model as a Hugging Face directory: `python -m trainers.models.tiny --out DIR [--family F] [--seed N]`.

116 thousand parameters and a tokenizer of single bytes, so that the whole of Oolong can be tried on a CPU.
Every role of the chat has one token of its own: at this size, spelling "assistant" would be a third of a prompt.
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
    "initializer_range": 0.1,  # about 1 over the root of the width; at 0.02 the skill comes far too late
    "bos_token_id": None,
    "pad_token_id": 256,
    "eos_token_id": 257,
    "dtype": "float32",
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, then pad, end and one token per role: 261 tokens, no merges; any text survives a round trip."""
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
    """A config of any family that the trainer knows; `changes` override it."""
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **{**COMMON, **FAMILIES[family].tiny, **changes})


def make_tiny_model(directory: Path, *, seed: int = 1, family: str = "qwen3", **changes: Any) -> Path:
    """Write config, tokenizer and random float32 weights into `directory`."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(family, **changes), dtype=torch.float32)
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    (directory / "model.safetensors").chmod(0o644)  # it is written for its owner alone, agents may be others
    byte_tokenizer().save_pretrained(directory)
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny model with a byte tokenizer.")
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument("--family", default="qwen3", choices=FAMILIES, help="its model_type")
    parser.add_argument("--seed", type=int, default=1, help="of the random weights")
    arguments = parser.parse_args()
    directory = make_tiny_model(arguments.out, seed=arguments.seed, family=arguments.family)
    print(f"tiny {arguments.family} written to {directory}")


if __name__ == "__main__":
    main()
