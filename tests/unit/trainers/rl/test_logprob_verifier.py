"""Which weights the verifier keeps, and which it returns for reuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from oolong.contracts.rollout import AckedProbe, Probe
from oolong.contracts.run_spec import LoraSection, WeightSyncSection
from oolong.contracts.telemetry import Outbox
from trainers.distributed.fsdp import gather_adapters, gather_full_tensors
from trainers.models.lora import add_adapters
from trainers.models.packed_row import pack_row
from trainers.models.policy import load_policy, weightless_policy
from trainers.models.tiny import make_tiny_model
from trainers.rl import logprob_verifier
from trainers.rl.logprob_verifier import LogprobVerifier

Weights = dict[str, torch.Tensor]


@pytest.fixture
def verifier(tiny_model: Path, tmp_path: Path) -> LogprobVerifier:
    return make_verifier(tiny_model, tmp_path)


def make_verifier(model: Path, directory: Path, *, lora: LoraSection | None = None) -> LogprobVerifier:
    return LogprobVerifier(
        None,  # type: ignore[arg-type]  # its thread, which alone calls the controller, is not started
        Outbox(directory, 0),
        model_directory=model,
        section=WeightSyncSection(probe_first_versions=10, probe_every=10),
        tolerance=1e-4,
        first_version=0,
        dtype=torch.float32,
        device=torch.device("cpu"),
        lora=lora,
    )


def test_weights_return_for_reuse_once_nothing_compares_with_them(
    verifier: LogprobVerifier, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprob_verifier, "MAX_KEPT_VERSIONS", 2)
    versions = [
        gather_full_tensors(load_policy(tiny_model), dtype=torch.float32, keep=True) for _ in range(6)
    ]
    assert verifier.add_weights(0, versions[0]) is None
    assert verifier.add_weights(1, versions[1]) is None
    assert verifier.add_weights(2, versions[2]) is versions[0]
    assert verifier.add_weights(11, versions[3]) is versions[3]  # not verified

    returned: list[Any] = []
    compute = verifier._own_logprobs

    def publish_meanwhile(tensors: Weights, probe: Probe) -> torch.Tensor:
        returned.append(verifier.add_weights(3, versions[4]))  # displaces version 1, which is compared now
        returned.append(verifier.add_weights(4, versions[5]))
        return compute(tensors, probe)

    monkeypatch.setattr(verifier, "_own_logprobs", publish_meanwhile)
    probe = Probe(prompt_token_ids=[1, 2, 3], token_ids=[4, 5], logprobs=[0.0, 0.0])
    monkeypatch.setattr(verifier, "_tolerance", 1e9)
    verifier._compare(AckedProbe(worker_id="w", version=1, probe=probe))
    assert returned[0] is None and returned[1] is versions[2]


def test_comparison_of_an_adapter_version_computes_the_adapted_policys_logprobs(
    tiny_model: Path, tmp_path: Path
) -> None:
    lora = LoraSection(rank=4)
    policy = add_adapters(load_policy(tiny_model), lora, seed=1)
    for name, parameter in policy.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(parameter, std=0.1)
    verifier = make_verifier(tiny_model, tmp_path, lora=lora)
    adapters = gather_adapters(policy, dtype=torch.float32)
    probe = Probe(prompt_token_ids=[1, 2, 3], token_ids=[4, 5], logprobs=[0.0, 0.0])
    row = pack_row([[1, 2, 3, 4, 5]], [[3, 4]])
    expected = policy(row)[0].tolist()
    assert verifier._own_logprobs(adapters, probe).tolist() == pytest.approx(expected, abs=1e-6)
    assert expected != pytest.approx(load_policy(tiny_model)(row)[0].tolist(), abs=1e-3)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_comparison_has_no_weights_of_its_own_and_computes_the_policys_logprobs(
    family: str, tiny_model: Path, tmp_path: Path, verifier: LogprobVerifier
) -> None:
    model = make_tiny_model(tmp_path / "model", family=family, seed=5)
    state = torch.get_rng_state()
    verifier._policy = weightless_policy(model, dtype=torch.float32, device=torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.is_meta for parameter in verifier._policy.parameters())
    policy = load_policy(model)
    probe = Probe(prompt_token_ids=[1, 2, 3], token_ids=[4, 5], logprobs=[0.0, 0.0])
    own = verifier._own_logprobs(gather_full_tensors(policy, dtype=torch.float32, keep=True), probe)
    expected, _ = policy(pack_row([[1, 2, 3, 4, 5]], [[3, 4]]))
    assert own.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
