"""Run by the node Python: the trainer's own forward pass over whole trajectories, all turns of them.

`recompute_by_trainer.py GROUPS.msgpack WEIGHTS TEMPERATURE`: groups as the trainer takes them, and a folder with a
directory per version. Prints {"max": largest difference to the behavior log-probabilities, "tokens": compared}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from oolong.contracts.rollout import Group


def main() -> None:
    import torch

    from trainers.models.packed_row import pack_row
    from trainers.models.policy import Policy, load_policy
    from trainers.rl.batch_plan import training_sequences

    groups = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=list[Group])
    temperature = float(sys.argv[3])
    policies: dict[int, Policy] = {}
    largest, tokens = 0.0, 0
    for sequence in [one for members in training_sequences(groups) for one in members]:
        row = pack_row([sequence.tokens], [sequence.loss_positions])
        behavior = torch.tensor(sequence.behavior_logprobs)
        versions = torch.tensor(sequence.versions)
        for version in set(sequence.versions):
            if version not in policies:
                policies[version] = load_policy(Path(sys.argv[2]) / f"v{version:08d}").eval()
            with torch.no_grad():
                logprobs, _entropy = policies[version](row, temperature=temperature)
            by_it = versions == version
            largest = max(largest, float((logprobs - behavior)[by_it].abs().max()))
            tokens += int(by_it.sum())
    print(json.dumps({"max": largest, "tokens": tokens}))


if __name__ == "__main__":
    main()
