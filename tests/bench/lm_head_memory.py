"""Memory of the log-prob head against that of plain logits: `python -m tests.bench.lm_head_memory` with torch.

Peak memory above that of the inputs, forward and backward of logprobs at 16,384 positions, as the operating system
(or the CUDA allocator) counts it, each way in a process of its own. On a processor the vocabulary is 16,384: plain
logits of a real one, 151,936, would take about 30 GB there, and the ratio would be larger.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

POSITIONS, HIDDEN = 16_384, 1_024
VOCABULARY = {"cpu": 16_384, "cuda": 151_936}
KEY = "lm_head_memory_ratio"


def measure(device: str = "cpu", *, positions: int = POSITIONS) -> dict[str, object]:
    """The ratio, and what it was made of."""
    peaks = {way: _peak_bytes(way, device, positions) for way in ("plain", "chunked")}
    return {
        "key": KEY,
        "value": peaks["plain"] / peaks["chunked"],
        "unit": "plain logits / chunked head",
        "baseline": "log_softmax of all logits, with autograd",
        "settings": {
            "device": device, "positions": positions, "hidden": HIDDEN, "vocabulary": VOCABULARY[device],
            "dtype": _dtype(device), "peak_bytes": peaks,
        },
    }  # fmt: skip


def _dtype(device: str) -> str:
    return "bfloat16" if device == "cuda" else "float32"


def _peak_bytes(way: str, device: str, positions: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.lm_head_memory", way, device, str(positions)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout.split()[-1])


def _run(way: str, device: str, positions: int) -> int:
    import torch

    from trainers.models.logprobs import token_logprobs

    dtype = getattr(torch, _dtype(device))
    hidden = torch.randn(positions, HIDDEN, device=device, dtype=dtype, requires_grad=True)
    # Scaled, so that probabilities are no denormal numbers, which a processor is slow with.
    weight = (
        torch.randn(VOCABULARY[device], HIDDEN, device=device, dtype=dtype) / HIDDEN**0.5
    ).requires_grad_()
    targets = torch.randint(VOCABULARY[device], (positions,), device=device)
    token_logprobs(hidden[:8], weight, targets[:8])[0].sum()  # libraries allocate their buffers at first use
    before = _forget_peak(device)
    if way == "chunked":
        logprobs, _ = token_logprobs(hidden, weight, targets)
    else:
        logprobs = (hidden @ weight.T).float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
    logprobs.sum().backward()
    return _peak(device) - before


def _forget_peak(device: str) -> int:
    """Start counting again; returns what is in use."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.memory_allocated())
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM becomes VmRSS
    return _status("VmRSS")


def _peak(device: str) -> int:
    if device == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated())
    return _status("VmHWM")


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(_run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    else:
        import torch

        print(json.dumps(measure("cuda" if torch.cuda.is_available() else "cpu"), indent=1))
