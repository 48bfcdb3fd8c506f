"""Dynamic microbatches against other ways: `python -m tests.bench.microbatches` with torch prints four measures.

`bin_use`, `flops_imbalance` and `dynamic_over_fixed_microbatches` come from the planner on sampled lengths and the
FLOPs of a real shape; the last adds a **cost model** for time (its constants are in the settings; no GPU ran).
`packed_over_padded` is measured: forward and backward of a tiny model on this machine, one thread.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tests.support.packing import utilization
from trainers.distributed.sequence_packing import (
    Microbatches,
    SequenceSize,
    distribute,
    flops_imbalance,
    pack_microbatches,
    total_flops,
)
from trainers.models.flops import forward_flops

# DeepSeek-R1-Distill-Qwen-1.5B
SHAPE = {
    "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
    "intermediate_size": 8960, "vocab_size": 151936,
}  # fmt: skip
RANKS, TOKEN_BUDGET, SEQUENCES, MINIBATCHES, SEEDS = 8, 32_768, 2_048, 4, (1, 2, 3)
BATCH_SIZES = (2_048, 512, 256, 64)  # of the table over them
LENGTHS = {"lognormal_mu": 8.2, "lognormal_sigma": 1.0, "longest": 27_648, "prompt": 256}
# An H800 at 40 % of its 989 TFLOP/s in bf16; each microbatch gathers and scatters 1.5B bf16 parameters three times
# over NVLink at 200 GB/s, of which half is hidden, and launches its kernels.
COST_MODEL = {"flops_per_second": 0.4 * 989e12, "seconds_per_microbatch": 0.03}


def algorithm_1(lengths: Sequence[int], *, capacity: int, min_batches: int) -> Microbatches:
    """Algorithm 1 of arXiv 2505.24298: longest first; into a new batch while there are fewer than `min_batches` or none
    has room, else into the batch with the fewest sequences.
    """
    batches: Microbatches = []
    tokens: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        fitting = [number for number, used in enumerate(tokens) if used + lengths[index] <= capacity]
        if len(batches) < min_batches or not fitting:
            batches.append([index])
            tokens.append(lengths[index])
        else:
            number = min(fitting, key=lambda one: len(batches[one]))
            batches[number].append(index)
            tokens[number] += lengths[index]
    return batches


def fixed_count(sequences: int, *, count: int) -> Microbatches:
    """`count` microbatches of equally many sequences (give or take one), in the given order."""
    edges = [sequences * number // count for number in range(count + 1)]
    return [list(range(start, end)) for start, end in pairwise(edges)]


def sampled_sizes(seed: int, *, count: int = SEQUENCES) -> list[SequenceSize]:
    rng, cost = random.Random(seed), forward_flops(SHAPE)
    sizes = []
    for _ in range(count):
        drawn = int(rng.lognormvariate(LENGTHS["lognormal_mu"], LENGTHS["lognormal_sigma"])) + 1
        length = min(int(LENGTHS["longest"]), drawn)
        tokens = int(LENGTHS["prompt"]) + length
        sizes.append(SequenceSize(tokens, 3 * cost.of_sequence(tokens, length)))  # forward and backward
    return sizes


def fixed_bins(sizes: list[SequenceSize]) -> Microbatches:
    """The smallest fixed count that keeps every microbatch under the budget, on every rank."""
    count = RANKS
    while True:
        bins = fixed_count(len(sizes), count=count)
        if all(sum(sizes[place].tokens for place in one) <= TOKEN_BUDGET for one in bins):
            return bins
        count += RANKS


def fixed(sizes: list[SequenceSize]) -> list[Microbatches]:
    """In the order of arrival: the ranks wait for each other's long ones."""
    return _rank_by_rank(fixed_bins(sizes))


def fixed_level(sizes: list[SequenceSize]) -> list[Microbatches]:
    """The stronger baseline: the same microbatches, those of like cost side by side."""
    return distribute(sizes, fixed_bins(sizes), RANKS)


def papers(sizes: list[SequenceSize]) -> list[Microbatches]:
    bins = algorithm_1([size.tokens for size in sizes], capacity=TOKEN_BUDGET, min_batches=RANKS)
    return _rank_by_rank(bins + [[] for _ in range(-len(bins) % RANKS)])


def dynamic(sizes: list[SequenceSize]) -> list[Microbatches]:
    return pack_microbatches(sizes, num_ranks=RANKS, token_budget=TOKEN_BUDGET)


def _rank_by_rank(bins: Microbatches) -> list[Microbatches]:
    return [bins[rank::RANKS] for rank in range(RANKS)]


def seconds(sizes: list[SequenceSize], dealt: list[Microbatches]) -> float:
    """Of one minibatch by the cost model: the ranks go in lockstep."""
    waited = sum(max(total_flops(sizes, one) for one in abreast) for abreast in zip(*dealt, strict=True))
    passes = len(dealt[0])
    return waited / COST_MODEL["flops_per_second"] + passes * COST_MODEL["seconds_per_microbatch"]


def measure_plans() -> list[dict[str, Any]]:
    ways: dict[str, Callable[[list[SequenceSize]], list[Microbatches]]] = {
        "dynamic": dynamic,
        "algorithm_1": papers,
        "fixed": fixed,
        "fixed_level": fixed_level,
    }
    table: dict[str, dict[str, float]] = {}
    for name, way in ways.items():
        batches = [sampled_sizes(100 * seed + part) for seed in SEEDS for part in range(MINIBATCHES)]
        plans = [(sizes, way(sizes)) for sizes in batches]
        table[name] = {
            "microbatches_per_rank": statistics.mean(len(dealt[0]) for _, dealt in plans),
            "bin_use": statistics.mean(utilization(*plan, token_budget=TOKEN_BUDGET) for plan in plans),
            "flops_imbalance": statistics.mean(flops_imbalance(*plan) for plan in plans),
            "seconds": statistics.mean(seconds(*plan) for plan in plans),
        }
    settings = {
        "ranks": RANKS, "token_budget": TOKEN_BUDGET, "sequences_per_minibatch": SEQUENCES, "lengths": LENGTHS,
        "shape": SHAPE, "seeds": SEEDS, "table": table,
    }  # fmt: skip
    baseline = (
        "equal sequence counts, the smallest count that keeps the budget, microbatches of like cost abreast "
        "(`fixed_level`; `fixed` is the order of arrival)"
    )
    ratio = table["fixed_level"]["seconds"] / table["dynamic"]["seconds"]
    return [
        {"key": "bin_use", "value": table["dynamic"]["bin_use"], "unit": "share", "baseline": None,
         "settings": settings},
        {"key": "flops_imbalance", "value": table["dynamic"]["flops_imbalance"], "unit": "lockstep / mean",
         "baseline": None, "settings": settings},
        {"key": "dynamic_over_fixed_microbatches", "value": ratio,
         "unit": "speed ratio", "baseline": baseline,
         "settings": {**settings, "cost_model": COST_MODEL, "emulated": True}},
    ]  # fmt: skip


def by_batch_size() -> list[list[str]]:
    """The rows of the table in docs/concepts/microbatches.md: sequences of a minibatch, bin use, imbalance."""
    rows = []
    for count in BATCH_SIZES:
        batches = [
            sampled_sizes(100 * seed + part, count=count) for seed in SEEDS for part in range(MINIBATCHES)
        ]
        plans = [(sizes, dynamic(sizes)) for sizes in batches]
        use = statistics.mean(utilization(*plan, token_budget=TOKEN_BUDGET) for plan in plans)
        imbalance = statistics.mean(flops_imbalance(*plan) for plan in plans)
        rows.append([f"{count:,}", f"{use:.2f}", f"{imbalance:.2f}"])
    return rows


def measure_packed(*, sequences: int = 96, repeats: int = 3) -> dict[str, Any]:
    """CPU seconds of forward and backward over long-tailed sequences: padded batches against packed rows."""
    import tempfile
    from pathlib import Path

    import torch

    from trainers.models.logprobs import token_logprobs
    from trainers.models.packed_row import pack_row
    from trainers.models.policy import load_policy
    from trainers.models.tiny import make_tiny_model

    torch.set_num_threads(1)
    rng = random.Random(1)
    lengths = [min(900, 8 + int(rng.lognormvariate(4.2, 0.9))) for _ in range(sequences)]
    tokens = [[rng.randrange(256) for _ in range(length)] for length in lengths]
    with tempfile.TemporaryDirectory() as directory:
        model = make_tiny_model(Path(directory) / "model")
        policy = load_policy(model)
        from transformers import AutoModelForCausalLM

        plain = AutoModelForCausalLM.from_pretrained(model, attn_implementation="sdpa", dtype=torch.float32)

    sizes = [SequenceSize(length, float(length)) for length in lengths]
    [rows] = pack_microbatches(sizes, num_ranks=1, token_budget=2048)

    def packed() -> float:
        total = 0.0
        for places in rows:
            row = pack_row(
                [tokens[place] for place in places], [range(1, lengths[place]) for place in places]
            )
            logprobs, _ = policy(row)
            logprobs.sum().backward()
            total += float(logprobs.detach().double().sum())
        return total

    def padded(order: list[int], per_batch: int) -> float:
        total = 0.0
        for start in range(0, len(order), per_batch):
            places = order[start : start + per_batch]
            longest = max(lengths[place] for place in places)
            ids = torch.tensor([tokens[place] + [256] * (longest - lengths[place]) for place in places])
            hidden = plain.model(
                input_ids=ids, use_cache=False
            ).last_hidden_state  # causal: padding on the right
            at = [(number, t) for number, place in enumerate(places) for t in range(1, lengths[place])]
            row, position = torch.tensor(at).T
            logprobs, _ = token_logprobs(hidden[row, position - 1], plain.lm_head.weight, ids[row, position])
            logprobs.sum().backward()
            total += float(logprobs.detach().double().sum())
        return total

    arrival = list(range(sequences))
    by_length = sorted(arrival, key=lengths.__getitem__)
    ways = {
        "packed": packed,
        "padded": lambda: padded(arrival, 8),
        "padded_sorted_by_length": lambda: padded(by_length, 8),
    }
    totals = {name: way() for name, way in ways.items()}
    if max(totals.values()) - min(totals.values()) > 0.05:
        raise AssertionError(f"the ways compute different log-probabilities: {totals}")
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.process_time()
            way()
            spent[name].append(time.process_time() - began)
    best = {name: min(values) for name, values in spent.items()}
    return {
        "key": "packed_over_padded", "value": best["padded"] / best["packed"], "unit": "speed ratio",
        "baseline": "right-padded batches of 8 in the order of arrival, causal attention without a mask",
        "settings": {
            "cpu_seconds": best, "over_padded_sorted_by_length": best["padded_sorted_by_length"] / best["packed"],
            "sequences": sequences, "mean_tokens": statistics.mean(lengths), "longest": max(lengths),
            "model": "the tiny Qwen3, float32, one thread",
        },
    }  # fmt: skip


def measure() -> list[dict[str, Any]]:
    return [*measure_plans(), measure_packed()]


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
