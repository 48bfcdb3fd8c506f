"""Run by the node Python: recompute behavior log-probabilities by a plain forward of the weights of each token.

`recompute_logprobs.py TRAJECTORIES.json`, a list of {prompt, tokens, logprobs, versions, temperature, weights:
{version: directory}}. Prints {"max": largest difference, "tokens": compared, "by_version": {version: largest}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    trajectories: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
    models: dict[str, Any] = {}
    by_version: dict[str, float] = {}
    tokens = 0
    for trajectory in trajectories:
        prompt, completion = trajectory["prompt"], trajectory["tokens"]
        for version in sorted({str(v) for v in trajectory["versions"]}):
            if version not in models:
                directory = trajectory["weights"][version]
                models[version] = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
            with torch.no_grad():
                logits = models[version](torch.tensor([prompt + completion])).logits[0].double()
            logprobs = torch.log_softmax(logits / trajectory["temperature"], dim=-1)
            for place, token in enumerate(completion):
                if str(trajectory["versions"][place]) != version:
                    continue
                difference = abs(
                    float(logprobs[len(prompt) + place - 1, token]) - trajectory["logprobs"][place]
                )
                by_version[version] = max(by_version.get(version, 0.0), difference)
                tokens += 1
    print(json.dumps({"max": max(by_version.values()), "tokens": tokens, "by_version": by_version}))


if __name__ == "__main__":
    main()
