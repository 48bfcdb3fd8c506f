"""Checkpoints of LoRA runs: they hold adapters, name their base, and are merged where a whole model is needed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, load_file

from control_plane.assets.models import BaseModel
from control_plane.assets.storage import store
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.runs.models import Attempt
from oolong.contracts.lora_adapter import WeightsReference
from oolong.merging.folders import folder_of_tar
from tests.support.checkpoint_tars import pack_checkpoint
from tests.support.tiny_adapters import adapter_tar, merged_tensors, model_files, model_tar

LORA = {"base_model": "tiny", "lora": {"rank": 2}}


@pytest.fixture
def base(alice: Any) -> BaseModel:
    """A base model in the store."""
    blob = store.put([model_tar()])
    return BaseModel.objects.create(
        project=alice.project, created_by=alice.user, name="kept", source="upload", number=1, sha256=blob.sha256,
        bytes=blob.bytes, manifest_sha256="5" * 64,
    )  # fmt: skip


@pytest.fixture
def adapter(alice: Any, clock: Any) -> Any:
    def make(seed: int, **changes: Any) -> Checkpoint:
        return stored(alice, clock, adapter_tar(seed), f"run_{seed}", content="adapter", **changes)

    return make


def stored(alice: Any, clock: Any, data: bytes, run: str, **changes: Any) -> Checkpoint:
    blob = store.put([data])
    return Checkpoint.objects.create(
        project=alice.project, run_id=run, run_name=run, attempt_id=f"att_{run}", attempt_number=1,
        node_id="node_1", step=20, manifest_sha256=hashlib.sha256(run.encode()).hexdigest(),
        tar_sha256=blob.sha256, bytes=blob.bytes, state=CheckpointState.STORED, created_at=clock.now,
        stored_at=clock.now, **changes,
    )  # fmt: skip


def assert_equal(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert np.allclose(found[name], tensor, atol=1e-6), name


def test_a_checkpoint_of_a_lora_run_is_an_adapter_for_the_base_model(
    alice: Any, node: Any, start: Any
) -> None:
    machine = node(slots=4)
    run = start(machine, model=LORA)
    model = BaseModel.objects.get(name="tiny")
    (wanted,) = machine.beat().attempts
    assert wanted.initial_weights == WeightsReference(kind="base_model", id=model.pk, sha256="")
    attempt = Attempt.objects.get()
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=9)
    (shown,) = alice.get("/checkpoints?content=adapter").json()["data"]
    assert (shown["kind"], shown["run"]["id"]) == ("training", run["id"])
    assert shown["base"] == {"kind": "base_model", "id": model.pk, "name": "tiny", "sha256": ""}
    assert alice.get("/checkpoints?content=model").json()["data"] == []


def test_a_run_from_an_adapter_gets_the_base_and_every_adapter_in_order(
    alice: Any, node: Any, tick: Any, base: BaseModel, adapter: Any
) -> None:
    first = adapter(1, base_model=base)
    second = adapter(2, base_model=base, base_checkpoint=first)
    machine = node(slots=4)
    alice.run(model={"checkpoint": second.pk})
    tick()
    (wanted,) = machine.beat().attempts
    assert wanted.model is not None and (wanted.model.kind, wanted.model.sha256) == ("model", base.sha256)
    assert [one.sha256 for one in wanted.adapters] == [first.tar_sha256, second.tar_sha256]
    assert wanted.initial_weights == WeightsReference(
        kind="checkpoint", id=second.pk, sha256=second.manifest_sha256
    )
    for sha256 in (base.sha256, first.tar_sha256, second.tar_sha256):
        assert machine.get(f"/artifacts/{sha256}").status_code == 200
    other = adapter(3, base_model=base)
    assert machine.get(f"/artifacts/{other.tar_sha256}").status_code == 404


def test_a_run_from_an_adapter_of_a_model_path_waits_for_a_node_that_offers_it(
    alice: Any, node: Any, tick: Any, adapter: Any
) -> None:
    model = BaseModel.objects.get(name="tiny")
    checkpoint = adapter(1, base_model=model)
    alice.run(model={"checkpoint": checkpoint.pk})
    machine = node(slots=4)
    tick()
    (wanted,) = machine.beat().attempts
    assert (wanted.model, wanted.model_path) == (None, "/models/tiny")
    assert [one.sha256 for one in wanted.adapters] == [checkpoint.tar_sha256]
    model.path = "/elsewhere/tiny"
    model.save()
    run = alice.run(model={"checkpoint": checkpoint.pk}, name="second")
    tick()
    assert "/elsewhere/tiny" in alice.see(run["id"])["pending_reason"]


def test_a_lora_run_from_an_adapter_makes_adapters_for_that_one(
    alice: Any, node: Any, start: Any, base: BaseModel, adapter: Any
) -> None:
    first = adapter(1, base_model=base)
    machine = node(slots=4)
    start(machine, model={"checkpoint": first.pk, "lora": {"rank": 2}})
    attempt = Attempt.objects.get()
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=9)
    made = Checkpoint.objects.exclude(pk=first.pk).get()
    assert (made.content, made.base_checkpoint, made.base_model) == ("adapter", first, base)
    assert alice.get(f"/checkpoints/{made.pk}").json()["base"]["id"] == first.pk
    # The base is kept for as long as something was trained from it.
    plan = alice.post("/checkpoint-retention/plan", {"every_steps": 1000}).json()
    assert first.pk not in [one["id"] for one in plan["free"]]


def test_an_adapter_is_exported_alone_and_merged(
    oolong: Any, alice: Any, base: BaseModel, adapter: Any
) -> None:
    adapter(1, base_model=base)
    assert oolong("checkpoint", "export", "run_1@20", "alone").code == 0
    assert {path.name for path in Path("alone").iterdir()} == {
        "README.md", "adapter_config.json", "adapter_model.safetensors", "base.json",
    }  # fmt: skip
    assert oolong("checkpoint", "export", "run_1@20", "whole", "--merged").code == 0
    assert_equal(load_file("whole/model.safetensors"), merged_tensors(1))
    assert {path.name for path in Path("whole").iterdir()} == {*model_files(), "README.md"}
    assert Path("whole/config.json").read_bytes() == model_files()["config.json"]
    assert not list(Path().glob("whole.tar*"))
    again = oolong("checkpoint", "export", "run_1@20", "whole", "--merged")
    assert again.code == 1 and "whole is not empty" in again.err


def test_the_merged_model_of_an_adapter_on_an_adapter_has_both(
    oolong: Any, base: BaseModel, adapter: Any
) -> None:
    first = adapter(1, base_model=base)
    adapter(2, base_model=base, base_checkpoint=first)
    assert oolong("checkpoint", "export", "run_2@20", "whole", "--merged").code == 0
    assert_equal(load_file("whole/model.safetensors"), merged_tensors(1, 2))


def test_the_base_of_an_adapter_may_be_the_model_of_a_checkpoint(
    alice: Any, clock: Any, adapter: Any
) -> None:
    files = {f"hf/{name}": data for name, data in model_files().items()}
    whole = stored(alice, clock, pack_checkpoint(files), "run_whole")
    checkpoint = adapter(1, base_checkpoint=whole)
    reply = alice.get(f"/checkpoints/{checkpoint.pk}/merged")
    body = b"".join(reply.streaming_content)
    assert len(body) == int(reply["Content-Length"]) and len(body) % 512 == 0
    blob = store.put([body])
    with store.open_blob(blob.sha256) as archive:
        assert_equal(
            load(folder_of_tar(archive, marker="config.json")["model.safetensors"].read()), merged_tensors(1)
        )
    assert alice.get(f"/checkpoints/{whole.pk}/merged").json()["code"] == "not_an_adapter"


def test_an_adapter_whose_base_is_gone_is_refused_by_name(alice: Any, base: BaseModel, adapter: Any) -> None:
    first = adapter(1, base_model=base)
    second = adapter(2, base_model=base, base_checkpoint=first)
    Checkpoint.objects.filter(pk=first.pk).update(state="DELETED")
    reply = alice.get(f"/checkpoints/{second.pk}/merged")
    assert (reply.status_code, reply.json()["code"]) == (410, "deleted") and first.pk in reply.json()[
        "detail"
    ]
    spec = alice.spec(model={"checkpoint": second.pk})
    (error,) = alice.post("/runs/validate", {"spec": spec}).json()["errors"]
    assert (error["pointer"], error["code"]) == ("/model/checkpoint", "base_deleted")
    assert first.pk in error["message"]


def test_an_adapter_of_a_model_path_is_not_merged_by_the_server(alice: Any, adapter: Any) -> None:
    checkpoint = adapter(1, base_model=BaseModel.objects.get(name="tiny"))
    reply = alice.get(f"/checkpoints/{checkpoint.pk}/merged")
    assert (reply.status_code, reply.json()["code"]) == (409, "base_on_nodes")
    assert "/models/tiny" in reply.json()["detail"]


def test_a_base_that_does_not_fit_is_named(alice: Any, clock: Any, adapter: Any) -> None:
    empty = stored(alice, clock, pack_checkpoint({"hf/config.json": b"{}"}), "run_whole")
    checkpoint = adapter(1, base_checkpoint=empty)
    reply = alice.get(f"/checkpoints/{checkpoint.pk}/merged")
    assert (reply.status_code, reply.json()["code"]) == (409, "cannot_merge")
    assert "model.safetensors is missing" in reply.json()["detail"]
