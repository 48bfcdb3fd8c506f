"""Before the first step: does this model compute in a packed row what it computes for each sequence alone?

Packing goes wrong silently (sequences see each other), and whether it does depends on the model's code, the version
of transformers, the attention kernel and the options. So it is tried, once, on the very model that will be trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainers.models.packing import pack
from trainers.models.policy import Policy
from trainers.ranks import Ranks

LENGTHS = (7, 19, 12)  # tokens of the sequences that are tried
EXACT = 1e-4  # nats: float32 differs by a hundredth of that
SHARE_OF_WRONG = 0.25  # in half precision: of the difference that seeing the others makes


class PackingBroken(Exception):
    """The model's packed log-probabilities are wrong; the message has the numbers."""


@dataclass(frozen=True)
class PackingCheck:
    packed: float  # largest |logprob packed - logprob alone|, nats
    joined: float  # the same where all tokens are one sequence: what wrong packing looks like

    @property
    def limit(self) -> float:
        return max(EXACT, SHARE_OF_WRONG * self.joined)


def say_packing_check(check: PackingCheck, ranks: Ranks) -> None:
    if ranks.first:
        print(
            f"packing: log-probabilities of packed and lone sequences differ by at most {check.packed:.1e} nats "
            f"(by {check.joined:.1e} if they saw each other)",
            flush=True,
        )


@torch.no_grad()
def check_packing(policy: Policy, *, exact: bool) -> PackingCheck:
    """Five small forward passes; collective. `exact` is for float32, which has no excuse. Raises PackingBroken."""
    device = next(policy.parameters()).device
    generator = torch.Generator().manual_seed(1)
    vocabulary = int(policy.config["vocab_size"])
    sequences = [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in LENGTHS]

    def logprobs(*row: list[int]) -> torch.Tensor:
        """Of all tokens but the first of each sequence."""
        packed = pack(row, [range(1, len(sequence)) for sequence in row])
        return policy(packed.to(device))[0]

    alone = torch.cat([logprobs(sequence) for sequence in sequences])
    joined = logprobs([token for sequence in sequences for token in sequence])
    firsts = {sum(LENGTHS[:number]) - 1 for number in range(1, len(LENGTHS))}
    kept = [place for place in range(joined.numel()) if place not in firsts]
    check = PackingCheck(
        packed=float((logprobs(*sequences) - alone).abs().max()),
        joined=float((joined[kept] - alone).abs().max()),
    )
    limit = EXACT if exact else check.limit
    if not check.packed <= limit:
        raise PackingBroken(
            f"packed log-probabilities differ from those of each sequence alone by {check.packed:.2e} nats, above "
            f"{limit:.2e} (sequences that see each other differ by {check.joined:.2e}): this model cannot be "
            "trained in packed rows with this version of transformers and this attention kernel"
        )
    return check
