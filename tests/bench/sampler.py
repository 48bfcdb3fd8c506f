"""Samples completions in the trainer's own process, with whatever weights it is given: no engine, no HTTP.

The log-probabilities come from the same log-softmax that is sampled from, at temperature 1. Finished rows leave the
batch, so that the long tail of a batch is cheap on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

COMPACT_BELOW = 0.7  # share of rows still running at which the batch is made smaller


@dataclass(frozen=True, kw_only=True)
class Sampled:
    token_ids: list[int]  # [T] the stop token included
    logprobs: list[float]  # [T]
    stopped: bool  # by the stop token, not by the limit


class Sampler:
    def __init__(self, model_directory: Path, *, seed: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model_directory, local_files_only=True)
        self._model = AutoModelForCausalLM.from_pretrained(
            model_directory, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        ).eval()
        self._random = torch.Generator().manual_seed(seed)
        self._stop = int(self._model.config.eos_token_id)
        self._pad = int(self._model.config.pad_token_id)

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        """Weights by the model's own names; a tied head need not be among them."""
        missing, unexpected = self._model.load_state_dict(weights, strict=False)
        left = [name for name in missing if name != "lm_head.weight"]
        if left or unexpected:
            raise ValueError(f"weights do not fit the sampler: missing {left}, unexpected {unexpected}")
        self._model.tie_weights()

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        ids: list[int] = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return ids

    def decode(self, token_ids: list[int]) -> str:
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=True)
        return text

    @torch.no_grad()
    def sample(self, prompts: list[list[int]], *, max_new_tokens: int) -> list[Sampled]:
        """One completion per prompt, at temperature 1, all in one batch."""
        longest = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[self._pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        cache = DynamicCache()
        rows = torch.arange(len(prompts))  # which prompt each row of the batch is
        tokens = torch.full((len(prompts), max_new_tokens), self._stop)
        logprobs = torch.zeros((len(prompts), max_new_tokens))
        lengths = torch.full((len(prompts),), max_new_tokens)
        stopped = torch.zeros(len(prompts), dtype=torch.bool)
        running = torch.ones(len(prompts), dtype=torch.bool)  # by row of the batch
        for place in range(max_new_tokens):
            logits = (
                self._model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                )
                .logits[:, -1]
                .float()
            )
            log_softmax = logits.log_softmax(dim=-1)
            chosen = torch.multinomial(log_softmax.exp(), 1, generator=self._random)
            tokens[rows, place] = chosen[:, 0]
            logprobs[rows, place] = log_softmax.gather(1, chosen)[:, 0]
            ended = running & (chosen[:, 0] == self._stop)
            lengths[rows[ended]] = place + 1
            stopped[rows[ended]] = True
            running = running & ~ended
            if not bool(running.any()):
                break
            positions = positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            ids = chosen
            if float(running.float().mean()) < COMPACT_BELOW:
                kept = running.nonzero()[:, 0]
                cache.batch_select_indices(kept)
                ids, mask, positions, rows = ids[kept], mask[kept], positions[kept], rows[kept]
                running = running[kept]
        return [
            Sampled(
                token_ids=tokens[row, :length].tolist(),
                logprobs=logprobs[row, :length].tolist(),
                stopped=bool(stopped[row]),
            )
            for row, length in enumerate(lengths.tolist())
        ]
