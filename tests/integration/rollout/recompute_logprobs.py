"""Run by the node Python: recompute behavior log-probabilities by a plain forward of the weights of each token.

`recompute_logprobs.py TRAJECTORIES.json`, a list of {prompt, tokens, logprobs, versions, temperature, weights:
{version: directory}, base: of directories that are adapters}. Prints {"max": largest difference, "tokens": compared,
"by_version": {version: largest}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    import torch

    trajectories: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
    models: dict[str, Any] = {}
    by_version: dict[str, float] = {}
    tokens = 0
    for trajectory in trajectories:
        prompt, completion = trajectory["prompt"], trajectory["tokens"]
        for version in sorted({str(v) for v in trajectory["versions"]}):
            if version not in models:
                directory = trajectory["weights"][version]
                models[version] = load_version(Path(directory), trajectory["base"])
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


def load_version(directory: Path, base: str) -> Any:
    """A whole model, or `base` with the adapter in `directory` merged into its weights."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    config_file = directory / "adapter_config.json"
    if not config_file.exists():
        return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    config = json.loads(config_file.read_text())
    adapter = load_file(directory / "adapter_model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            prefix = f"base_model.model.{name.removesuffix('.weight')}"
            if f"{prefix}.lora_A.weight" in adapter:
                product = adapter.pop(f"{prefix}.lora_B.weight") @ adapter.pop(f"{prefix}.lora_A.weight")
                weight += product * (config["lora_alpha"] / config["r"])
    assert not adapter, f"tensors of no layer: {sorted(adapter)}"
    return model


if __name__ == "__main__":
    main()
