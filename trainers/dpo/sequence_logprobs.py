"""Log-probabilities of whole completions, under the policy and under the reference model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainers.distributed.context import DistributedContext
from trainers.dpo.pairs import Pair, distribute_pairs
from trainers.models.flops import ForwardFlops
from trainers.models.packed_row import pack_row
from trainers.models.policy import Policy


def pair_logprobs(policy: Policy, pairs: Sequence[Pair], device: torch.device) -> torch.Tensor:
    """[P, 2] in float64: log-probabilities of the chosen and the rejected completions, summed over tokens."""
    examples = [side for pair in pairs for side in pair.examples]
    row = pack_row([one.tokens for one in examples], [one.target_positions for one in examples]).to(device)
    logprobs, _ = policy(row)
    # In float64: the ratio to the reference is a small difference of two large sums.
    sums = [
        part.sum(dtype=torch.float64)
        for part in logprobs.split([len(one.target_positions) for one in examples])
    ]
    return torch.stack(sums).view(len(pairs), 2)


@torch.no_grad()
def reference_logprobs(
    policy: Policy,
    pairs: Sequence[Pair],
    *,
    context: DistributedContext,
    token_budget: int,
    flops: ForwardFlops,
) -> torch.Tensor:
    """`pair_logprobs` of any number of pairs, in float64. Collective; every rank gets all of them."""
    found = torch.zeros(len(pairs), 2, dtype=torch.float64)
    indices = {pair.position: index for index, pair in enumerate(pairs)}
    shares = distribute_pairs(pairs, num_ranks=context.world_size, token_budget=token_budget, flops=flops)
    for microbatch in shares[context.rank]:
        logprobs = pair_logprobs(policy, microbatch, context.device).cpu()
        for pair, values in zip(microbatch, logprobs, strict=True):
            if pair.position >= 0:
                found[indices[pair.position]] = values
    return torch.tensor(context.sum(found.flatten().tolist()), dtype=torch.float64).view(-1, 2)
